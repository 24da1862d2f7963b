/** The scripted app's chats: a tree of versions in memory, search, presets, drafts, and files that are not there. */
import type { Attachment, Chat, ChatSummary, Draft, Found, Message, NewMessage, Preset } from '../api/types';
import { BackendError } from './backend';

interface Tree {
  summary: ChatSummary;
  system: string;
  draft: Draft;
  /** Every version of every message, in the order they were made. */
  all: { message: Message; parent: string | null }[];
  /** Ids of the messages that are shown. */
  shown: string[];
  /** Which message stood behind another one last. */
  next: Map<string, string>;
}

const gone = () =>
  new BackendError({
    code: 'not_found',
    message: 'This chat is no longer there.',
    hint: null,
    details: null,
  });

export const noDraft = (): Draft => ({ text: '', attachments: [], edit: null });

export class FakeChats {
  private readonly trees = new Map<string, Tree>();
  private readonly deleted = new Map<string, Tree>();
  presets: Preset[] = [];
  newDraft: Draft = noDraft();

  constructor(
    private readonly id: () => string,
    chats: Chat[],
  ) {
    for (const chat of chats) this.add(chat);
  }

  add(chat: Chat): void {
    const all = chat.messages.map((message, i) => ({
      message,
      parent: i === 0 ? null : (chat.messages[i - 1]?.id ?? null),
    }));
    this.trees.set(chat.summary.id, {
      summary: chat.summary,
      system: chat.system,
      draft: chat.draft,
      all,
      shown: chat.messages.map((message) => message.id),
      next: new Map(),
    });
  }

  tree(id: string): Tree {
    const tree = this.trees.get(id);
    if (!tree) throw gone();
    return tree;
  }

  list(): ChatSummary[] {
    return [...this.trees.values()].map((tree) => tree.summary);
  }

  private find(tree: Tree, id: string) {
    return tree.all.find((node) => node.message.id === id);
  }

  private of(messageId: string): Tree {
    const tree = [...this.trees.values()].find((other) => this.find(other, messageId));
    if (!tree) throw gone();
    return tree;
  }

  open(id: string): Chat {
    const tree = this.tree(id);
    const messages = tree.shown.flatMap((shown): Message[] => {
      const node = this.find(tree, shown);
      return node ? [this.versioned(tree, node.message, node.parent)] : [];
    });
    return { summary: tree.summary, messages, system: tree.system, draft: tree.draft };
  }

  private versioned(tree: Tree, message: Message, parent: string | null): Message {
    const versions = tree.all.filter((node) => node.parent === parent).map((node) => node.message.id);
    message.versions = versions.length > 1 ? versions : [];
    return message;
  }

  /** Takes what stands at and behind a message out of sight; returns what it stood behind. */
  private hide(tree: Tree, from: number): string | null {
    for (let i = 1; i < tree.shown.length; i++) tree.next.set(tree.shown[i - 1]!, tree.shown[i]!);
    tree.shown.length = from;
    return tree.shown.at(-1) ?? null;
  }

  /** A new chat, or the one there is. */
  begin(chatId: string | null, message: NewMessage): Tree {
    if (chatId !== null) return this.tree(chatId);
    const now = Date.now();
    const title = (message.text || (message.attachments[0]?.name ?? '')).slice(0, 60);
    const summary = {
      id: this.id(),
      title,
      created_at: now,
      updated_at: now,
      pinned: false,
      folder: null,
    };
    this.add({ summary, messages: [], system: message.system, draft: noDraft() });
    return this.tree(summary.id);
  }

  /** Appends a message to what is shown. */
  append(tree: Tree, message: Message): Message {
    const parent = tree.shown.at(-1) ?? null;
    tree.all.push({ message, parent });
    tree.shown.push(message.id);
    tree.summary.updated_at = Date.now();
    return this.versioned(tree, message, parent);
  }

  /** Makes room for a new version of a message: it and what follows are out of sight. */
  replace(messageId: string): { tree: Tree; after: string | null; old: Message } {
    const tree = this.of(messageId);
    const at = tree.shown.indexOf(messageId);
    const old = this.find(tree, messageId)?.message;
    if (at < 0 || !old) throw gone();
    return { tree, after: this.hide(tree, at), old };
  }

  show(messageId: string): Chat {
    const tree = this.of(messageId);
    const path: string[] = [];
    let id: string | null = messageId;
    while (id !== null && !tree.shown.includes(id)) {
      path.unshift(id);
      id = this.find(tree, id)?.parent ?? null;
    }
    if (path.length > 0) {
      this.hide(tree, id === null ? 0 : tree.shown.indexOf(id) + 1);
      tree.shown.push(...path);
      for (let end = tree.next.get(messageId); end !== undefined; end = tree.next.get(end))
        tree.shown.push(end);
    }
    return this.open(tree.summary.id);
  }

  lastOf(messageId: string): { tree: Tree; message: Message; after: string | null } {
    const tree = this.of(messageId);
    const node = this.find(tree, messageId);
    if (!node) throw gone();
    return { tree, message: node.message, after: node.parent };
  }

  delete(id: string): void {
    this.deleted.set(id, this.tree(id));
    this.trees.delete(id);
  }

  restore(id: string): void {
    const tree = this.deleted.get(id);
    if (!tree) throw gone();
    this.trees.set(id, tree);
  }

  search(query: string): Found[] {
    const wanted = query.trim().toLowerCase();
    if (wanted === '') return [];
    const cut = (text: string) => {
      const at = text.toLowerCase().indexOf(wanted);
      if (at < 0) return null;
      const before = text.slice(Math.max(0, at - 32), at);
      return {
        before: (at > 32 ? '…' : '') + before.replaceAll('\n', ' '),
        matched: text.slice(at, at + wanted.length),
        after: text.slice(at + wanted.length, at + wanted.length + 96).replaceAll('\n', ' '),
      };
    };
    const titles: Found[] = [];
    const messages: Found[] = [];
    for (const tree of this.trees.values()) {
      const title = cut(tree.summary.title);
      if (title) titles.push({ chat: tree.summary, message_id: null, role: null, ...title });
      for (const { message } of tree.all) {
        const place = cut(message.text) ?? cut(message.reasoning ?? '');
        if (place)
          messages.push({ chat: tree.summary, message_id: message.id, role: message.role, ...place });
      }
    }
    return [...titles, ...messages.reverse()];
  }
}

/** A file of the dialog that is not there. */
export const report: Attachment = {
  name: 'quarterly-report.txt',
  text: 'Revenue grew by four percent. Costs fell by one.\n'.repeat(400),
};
