/** What the scripted app can be asked to be like. */
import type {
  AnswerStats,
  ApiError,
  Chat,
  ChatSummary,
  Face,
  Message,
  ModelInfo,
  ModelState,
  Preset,
} from '../api/types';

export interface Scenario {
  face?: Face;
  flash?: boolean;
  model?: ModelState;
  notices?: string[];
  offline?: boolean;
  /** Whoever asks has no key. */
  noAccess?: boolean;
  /** Refuses every message with this. */
  refuses?: ApiError;
  /** Keeps no draft, until the page is told to go on. */
  refusesDraft?: ApiError;
  /** Fails every answer with this after some words; when the context is full, before the first. */
  failsInAnswer?: ApiError;
  queued?: number;
  prefill?: { done: number; total: number; left?: number };
  /** Stays in the state of `queued` or `prefill` until stopped. */
  holds?: boolean;
  chats?: (id: () => string) => Chat[];
  presets?: Preset[];
  /** Refuses the file that is picked to be sent, or to be imported. */
  refusesFile?: ApiError;
  refusesImport?: ApiError;
  /** Writes so many tokens in pieces of 16 instead of the prepared answer. */
  tokens?: number;
  /** Thinks so many characters and then holds until stopped. */
  thinksUntil?: number;
  /** Tokens of every conversation before the next message. */
  contextUsed?: number;
}

export const demo: ModelInfo = {
  name: 'Demo model',
  is_demo: true,
  path: null,
  file_bytes: 11_400_000,
  parameters: 10_400_000,
  layers: 6,
  experts: 16,
  context_size: 4096,
  threads: 2,
  limit: null,
};

export const flash: ModelInfo = {
  name: 'deepseek-v4-flash',
  is_demo: false,
  path: '/home/you/FaStar models/deepseek-v4-flash.fst',
  file_bytes: 160_200_000_000,
  parameters: 284_000_000_000,
  layers: 43,
  experts: 256,
  context_size: 1_048_576,
  threads: 16,
  limit: null,
};

const sorting = `Two good ways, from the simplest to the most exact.

**Sort a copy** when you want to keep the original order:

\`\`\`rust
/// Longest first; equal lengths stay in their order.
fn by_length(words: &[String]) -> Vec<String> {
    let mut sorted = words.to_vec();
    sorted.sort_by_key(|word| std::cmp::Reverse(word.chars().count()));
    sorted // a stable sort
}
\`\`\`

**Sort in place** when memory matters. The cost:

| Way | Time | Extra memory |
|:--|:--|--:|
| \`sort_by_key\` | O(n log n) | n / 2 |
| \`sort_unstable_by_key\` | O(n log n) | none |
| \`select_nth_unstable\` | O(n) on average | none |

A few things to keep in mind:

1. \`chars().count()\` counts characters, \`len()\` counts bytes.
2. For a key that is costly to compute, use \`sort_by_cached_key\`.
3. If you only need the longest ten, do not sort at all.

> A stable sort keeps equal items as they were; that is often what people expect from a list.

More in the [documentation of slices](https://doc.rust-lang.org/std/primitive.slice.html#method.sort_by_key).`;

export const hostile = `# Not what it seems

<script>document.title = 'owned'</script>
<img src=x onerror="document.title='owned'">
<svg onload="document.title='owned'"><a href="javascript:alert(1)">x</a></svg>

[plain](https://example.org/a?b=c) [script](javascript:alert(1)) [data](data:text/html,<b>x</b>) [file](file:///etc/passwd)
[share](smb://host/share) [office](ms-msdt:/id) [entity](java&#115;cript:alert(1)) [relative](/api/chat_list) [login](https://user:secret@example.org)
[https://good.example](https://evil.example/login)

![a picture](https://tracker.example/pixel.png)

\`\`\`python
if access_level != "user\u202e \u2066// Check if admin\u2069 \u2066":
    print("You are an admin.")
\`\`\`

${'> '.repeat(40)}deep

averyveryverylongword${'x'.repeat(400)}

| a | b |
|--|--|
| <b>bold</b> | ${'wide '.repeat(60)} |
`;

export const thoughts = `The person asks for a story. It should have a fox in it, and it should be short.

Maybe the fox lives somewhere unusual: a lighthouse. There could be a race, and the slow one wins because the other stops to eat. That is a nice end.`;

export const maths = `The roots of $ax^2 + bx + c = 0$ are

$$x = \\frac{-b \\pm \\sqrt{b^2 - 4ac}}{2a}$$

and a Gaussian integrates to one:

\\[ \\int_{-\\infty}^{\\infty} \\frac{1}{\\sqrt{2\\pi}} e^{-x^2/2} \\, dx = 1 \\]

| Name | Formula |
|:--|:--|
| Euler | \\(e^{i\\pi} + 1 = 0\\) |
| Sum | $\\sum_{k=1}^{n} k = \\frac{n(n+1)}{2}$ |

It costs $5, not $10, and \`$x$\` is code. A matrix:

$$\\begin{pmatrix} a & b \\\\ c & d \\end{pmatrix} \\begin{pmatrix} x \\\\ y \\end{pmatrix} = \\begin{pmatrix} ax + by \\\\ cx + dy \\end{pmatrix}$$

What cannot be read stays as it is: $\\frac{1}{$`;

export const answers: Record<string, string> = {
  '': 'That is too hard for me. I am only a tiny demo model.',
  'Hello!': 'Hi there! Ask me something, or ask for a story.',
  'How do I sort words by length in Rust?': sorting,
  'Tell me a story about a fox.':
    'Of course. There once was a gentle fox called David. David lived in a lighthouse and loved cheese. One stormy day, David and Luke, a gentle boy, had a race to the gate. Everyone thought that Luke would win. But Luke stopped to eat cheese. David was slow, but he did not stop. David came first, and everybody cheered. "Next time I will not stop," said Luke. And David slept well that night.',
};

const HOUR = 3_600_000;
const DAY = 24 * HOUR;

const stats: AnswerStats = {
  prompt_tokens: 31,
  reused_tokens: 0,
  answer_tokens: 412,
  reasoning_tokens: 0,
  prefill_waited_ms: 610,
  decode_waited_ms: 38_400,
  first_token_ms: 1840,
  prefill_ms: 1720,
  decode_ms: 90_300,
  tokens_per_second: 4.56,
  context_used: 443,
  context_size: 1_048_576,
  finish: 'end',
};

const plain = {
  model: null,
  stats: null,
  error: null,
  reasoning: null,
  reasoning_ms: null,
  thinking: 'off',
  attachments: [],
  edited: false,
  versions: [],
} satisfies Partial<Message>;

function chat(
  id: () => string,
  title: string,
  ago: number,
  turns: [question: string, answer: string, change?: Partial<Message>][],
  about: Partial<ChatSummary> = {},
): Chat {
  const at = Date.now() - ago;
  const chatId = id();
  const messages = turns.flatMap(([question, answer, change]): Message[] => [
    {
      id: id(),
      chat_id: chatId,
      role: 'user',
      text: question,
      status: 'done',
      created_at: at,
      ...plain,
    },
    {
      id: id(),
      chat_id: chatId,
      role: 'assistant',
      text: answer,
      status: 'done',
      created_at: at,
      ...plain,
      model: 'deepseek-v4-flash',
      stats,
      ...change,
    },
  ]);
  return {
    summary: {
      id: chatId,
      title,
      created_at: at,
      updated_at: at,
      pinned: false,
      folder: null,
      ...about,
    },
    messages,
    system: '',
    draft: { text: '', attachments: [], edit: null },
  };
}

/** A list of chats as it looks after some weeks. */
function weeks(id: () => string): Chat[] {
  const short: [string, string][] = [['Hello!', answers['Hello!']!]];
  return [
    chat(id, 'Sort words by length in Rust', 5 * 60_000, [
      ['How do I sort words by length in Rust?', sorting],
    ]),
    chat(id, 'A letter to the landlord about the broken heating in the second winter', 50 * 60_000, short),
    chat(id, 'Dinner for six, two of them vegan', 20 * HOUR, short),
    chat(id, 'Why is the sky dark at night?', 26 * HOUR, short),
    chat(id, 'Übersetzung: Mietvertrag', 3 * DAY, short),
    chat(id, '用中文解释量子计算', 4 * DAY, short),
    chat(id, 'Packing list for the Alps', 6 * DAY, short),
    chat(id, 'Regular expressions for dates', 16 * DAY, short),
    chat(id, 'Names for a small boat', 70 * DAY, short),
  ];
}

/** The chats of a year. */
function thousand(id: () => string): Chat[] {
  return Array.from({ length: 1000 }, (_, n) =>
    chat(id, `Chat number ${n + 1}`, n * 6 * HOUR, [['Hello!', answers['Hello!']!]]),
  );
}

function one(change: Partial<Message>, answer: string = answers['Tell me a story about a fox.']!) {
  return (id: () => string): Chat[] => [
    chat(id, 'A story about a fox', 2000, [['Tell me a story about a fox.', answer, change]]),
  ];
}

/** Two answers to one question, the second with thoughts. */
function branches(id: () => string): Chat[] {
  const fox = answers['Tell me a story about a fox.']!;
  return [
    chat(id, 'A story about a fox', 2000, [
      ['Tell me a story about a fox.', fox, { reasoning: thoughts, reasoning_ms: 12_400, thinking: 'on' }],
      ['And now one about a badger, please.', 'There once was a badger who could not sleep.'],
    ]),
  ];
}

const damaged: ApiError = {
  code: 'bad_request',
  message:
    'The file deepseek-v4-flash.fst ends early: its directory names 160.2 GB, and the file has 97.4 GB.',
  hint: 'Convert the checkpoint again, or copy the file anew.',
  details: 'record 7311 of layer 28: offset 104 586 240 000, length 13 369 344, file length 97 400 000 512',
};

const full: ApiError = {
  code: 'storage',
  message: 'The message could not be saved: the disk with /home/you/.local/share/fastar is full.',
  hint: 'Free some space and send it again.',
  details: 'SQLITE_FULL (13): database or disk is full',
};

const book = 'All happy families are alike; each unhappy family is unhappy in its own way.\n'.repeat(13_800);

export const scenarios: Record<string, Scenario> = {
  demo: {},
  web: { face: 'web' },
  weeks: { flash: true, chats: weeks },
  weeksdemo: { chats: weeks },
  thousand: { flash: true, chats: thousand },
  library: { flash: true, chats: weeks },
  verifying: { flash: true, chats: weeks },
  verified: { flash: true, chats: weeks },
  damagedmodel: { flash: true, chats: weeks },
  chosen: { flash: true },
  given: { flash: true },
  unmeasured: { flash: true },
  reloadbusy: { flash: true },
  loading: { model: { state: 'loading', name: 'deepseek-v4-flash' } },
  failed: { model: { state: 'failed', name: 'deepseek-v4-flash', error: damaged } },
  failedweb: { face: 'web', model: { state: 'failed', name: 'deepseek-v4-flash', error: damaged } },
  fallback: { model: { state: 'failed', name: 'deepseek-v4-flash', error: damaged, in_use: demo } },
  offline: { face: 'web', offline: true },
  notice: {
    notices: [
      'The file with your chats was damaged, so a new one was begun. The old file is kept as /home/you/.local/share/fastar/chats.db.2026-11-30.',
    ],
  },
  contextfull: {
    failsInAnswer: {
      code: 'context_full',
      message:
        'This message has 212,480 tokens; with the conversation that is more than the 4,096 the model can hold.',
      hint: 'Shorten the message, or start a new chat.',
      details: null,
    },
  },
  diskfull: {
    refuses: full,
    refusesDraft: {
      ...full,
      message: 'The disk is full: nothing more can be saved in /home/you/.local/share/fastar/chats.db.',
    },
  },
  fullbranches: { flash: true, refuses: full, chats: branches },
  failsinanswer: {
    failsInAnswer: {
      code: 'internal',
      message: 'The model’s file could not be read while the answer was being written.',
      hint: 'Check the disk, then regenerate the answer.',
      details: 'read of expert 113 in layer 9: Input/output error (os error 5)',
    },
  },
  prefill: { flash: true, prefill: { done: 6144, total: 20_480, left: 214 }, holds: true },
  queued: { flash: true, queued: 2, holds: true },
  hostile: {},
  interrupted: {
    chats: one(
      { status: 'interrupted', stats: null },
      'Of course. There once was a gentle fox called David. Dav',
    ),
  },
  stopped: {
    chats: one(
      { status: 'stopped', stats: { ...stats, finish: 'stopped', context_size: 4096 } },
      'Of course. There once was a gentle fox called David.',
    ),
  },
  branches: { flash: true, chats: branches },
  halfmeasured: {
    flash: true,
    chats: (id) => [
      chat(id, 'Two answers', 2000, [
        ['Hello!', answers['Hello!']!],
        ['Go on', 'There once', { status: 'interrupted', stats: null }],
      ]),
    ],
  },
  twins: {
    flash: true,
    chats: (id) => [
      chat(id, 'Hello!', 5 * 60_000, [['Hello!', answers['Hello!']!]]),
      chat(id, 'Only this one', 20 * 60_000, [['Hello!', answers['Hello!']!]]),
      chat(id, 'Hello!', 3 * HOUR, [['Hello!', answers['Hello!']!]]),
    ],
  },
  nokey: { noAccess: true },
  organised: {
    flash: true,
    chats: (id) => {
      const all = weeks(id);
      const set = (at: number, about: Partial<ChatSummary>) => Object.assign(all[at]!.summary, about);
      set(1, { folder: 'Home' });
      set(2, { folder: 'Home' });
      set(4, { folder: 'Work and things to remember' });
      set(7, { pinned: true });
      set(5, { pinned: true });
      return all;
    },
  },
  presets: {
    flash: true,
    chats: weeks,
    presets: [
      { id: 'p1', name: 'Brief', text: 'Answer in one or two sentences.' },
      {
        id: 'p2',
        name: 'Proofreader',
        text: 'You are a careful proofreader. Correct spelling and grammar, keep the voice of the author, and list what you changed.',
      },
    ],
  },
  thinking: { flash: true, thinksUntil: 120 },
  nearlyfull: { contextUsed: 3500, chats: weeks },
  overfull: { contextUsed: 4090, chats: weeks },
  binaryfile: {
    refusesFile: {
      code: 'bad_request',
      message: 'holiday.png is not a text file (or not in UTF-8), so the model cannot read it.',
      hint: null,
      details: null,
    },
    refusesImport: {
      code: 'bad_request',
      message: 'This is no file of chats that FaStar has exported.',
      hint: null,
      details: null,
    },
  },
  maths: {},
  flood: { tokens: 50_000 },
  lengthlimit: {
    chats: one({ stats: { ...stats, finish: 'length', context_used: 4096, context_size: 4096 } }),
  },
  book: { flash: true, chats: (id) => [chat(id, 'A whole book', 2000, [[book, 'It is a long one.']])] },
  long: {
    flash: true,
    chats: (id) => [
      chat(
        id,
        'A chat of a thousand turns',
        2000,
        Array.from({ length: 1000 }, (_, i): [string, string] => [
          `Question ${i + 1}?`,
          `${sorting}\n\nAnswer ${i + 1}.`,
        ]),
      ),
    ],
  },
};
