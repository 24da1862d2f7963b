import type { Channel } from '@tauri-apps/api/core';
import { clearMocks, mockIPC } from '@tauri-apps/api/mocks';
import { afterEach, describe, expect, it } from 'vitest';
import type { GenerationEvent, Draft, NewMessage } from '../api/types';
import { BackendError } from './backend';
import { tauri } from './tauri';

const half: Draft = { text: 'half', attachments: [{ name: 'a.txt', text: 'x' }], edit: null };
const hello: NewMessage = { text: 'Hello!', attachments: [], thinking: 'on', system: 'Be kind.' };

afterEach(() => clearMocks());

describe('the desktop shell', () => {
  it('is called by the names and arguments of the contract', async () => {
    const calls: [string, unknown][] = [];
    mockIPC((command, args) => {
      calls.push([command, args]);
      return command === 'chat_list' ? [] : null;
    });
    await tauri.appInfo();
    await tauri.pageShown();
    await tauri.modelState();
    await tauri.modelChoose();
    await tauri.modelUseDemo();
    await tauri.modelLibrary();
    await tauri.modelFolderChoose();
    await tauri.modelUse('m.fst');
    await tauri.modelShow('m.fst');
    await tauri.modelDelete('m.fst');
    await tauri.modelVerify('m.fst');
    await tauri.modelRepair('m.fst');
    await tauri.downloadStart({ entry: 'e', drafter: true });
    await tauri.downloadResume('m.fst');
    await tauri.jobList();
    await tauri.jobPause('j');
    await tauri.jobResume('j');
    await tauri.jobCancel('j', true);
    await tauri.jobDismiss('j');
    await tauri.chatList();
    await tauri.chatOpen('c');
    await tauri.chatRename('c', 'Title');
    await tauri.chatDelete('c');
    await tauri.chatRestore('c');
    await tauri.chatPin('c', true);
    await tauri.chatMove('c', null);
    await tauri.chatSystemSet('c', 'Be kind.');
    await tauri.chatSearch('fox');
    await tauri.chatExport(null, 'json');
    await tauri.chatImport();
    await tauri.presetList();
    await tauri.presetSave(null, 'Kind', 'Be kind.');
    await tauri.presetDelete('p');
    await tauri.draftNew();
    await tauri.draftSave('c', half);
    await tauri.notify?.('A', 'B');
    await tauri.attachmentPick();
    await tauri.messageCount('c', hello);
    await tauri.answerEdit('a', 'better');
    await tauri.versionShow('m');
    await tauri.generationStop('a');
    await tauri.linkOpen('https://example.org/');
    await tauri.settingList();
    await tauri.settingSet('threads', 2);
    await tauri.settingReset('threads');
    await tauri.cachePlan(7);
    await tauri.modelReload(true);
    await tauri.monitor();
    await tauri.traceStart();
    await tauri.traceStop();
    await tauri.hardware();
    await tauri.logRead(7);
    await tauri.diagnostics();
    expect(calls).toEqual([
      ['app_info', {}],
      ['page_shown', {}],
      ['model_state', {}],
      ['model_choose', {}],
      ['model_use_demo', {}],
      ['model_library', {}],
      ['model_folder_choose', {}],
      ['model_use', { file: 'm.fst' }],
      ['model_show', { file: 'm.fst' }],
      ['model_delete', { file: 'm.fst' }],
      ['model_verify', { file: 'm.fst' }],
      ['model_repair', { file: 'm.fst' }],
      ['download_start', { request: { entry: 'e', drafter: true } }],
      ['download_resume', { file: 'm.fst' }],
      ['job_list', {}],
      ['job_pause', { id: 'j' }],
      ['job_resume', { id: 'j' }],
      ['job_cancel', { id: 'j', keep: true }],
      ['job_dismiss', { id: 'j' }],
      ['chat_list', {}],
      ['chat_open', { id: 'c' }],
      ['chat_rename', { id: 'c', title: 'Title' }],
      ['chat_delete', { id: 'c' }],
      ['chat_restore', { id: 'c' }],
      ['chat_pin', { id: 'c', pinned: true }],
      ['chat_move', { id: 'c', folder: null }],
      ['chat_system_set', { id: 'c', text: 'Be kind.' }],
      ['chat_search', { query: 'fox' }],
      ['chat_export', { id: null, format: 'json' }],
      ['chat_import', {}],
      ['preset_list', {}],
      ['preset_save', { id: null, name: 'Kind', text: 'Be kind.' }],
      ['preset_delete', { id: 'p' }],
      ['draft_new', {}],
      ['draft_save', { chat_id: 'c', draft: half }],
      ['notify', { title: 'A', text: 'B' }],
      ['attachment_pick', {}],
      ['message_count', { chat_id: 'c', message: hello }],
      ['answer_edit', { answer_id: 'a', text: 'better' }],
      ['version_show', { message_id: 'm' }],
      ['generation_stop', { answer_id: 'a' }],
      ['link_open', { url: 'https://example.org/' }],
      ['setting_list', {}],
      ['setting_set', { key: 'threads', value: 2 }],
      ['setting_reset', { key: 'threads' }],
      ['cache_plan', { cache_bytes: 7 }],
      ['model_reload', { stop: true }],
      ['monitor', {}],
      ['trace_start', {}],
      ['trace_stop', {}],
      ['hardware', {}],
      ['log_read', { after: 7 }],
      ['diagnostics', {}],
    ]);
  });

  it('hands on what comes through the channel of an answer', async () => {
    const event: GenerationEvent = { type: 'text', text: 'Hi' };
    const seen: unknown[] = [];
    mockIPC((command, args) => {
      const { on_event, ...rest } = args as { on_event: Channel<GenerationEvent> };
      seen.push([command, rest]);
      on_event.onmessage(event);
      return null;
    });
    const heard: GenerationEvent[] = [];
    await tauri.messageSend(null, hello, (e) => heard.push(e));
    await tauri.messageRegenerate('a', 'off', (e) => heard.push(e));
    await tauri.messageEdit('m', hello, (e) => heard.push(e));
    await tauri.answerContinue('a', (e) => heard.push(e));
    await tauri.generationAttach('a', (e) => heard.push(e));
    expect(heard).toEqual([event, event, event, event, event]);
    expect(seen).toEqual([
      ['message_send', { chat_id: null, message: hello }],
      ['message_regenerate', { answer_id: 'a', thinking: 'off' }],
      ['message_edit', { message_id: 'm', message: hello }],
      ['answer_continue', { answer_id: 'a' }],
      ['generation_attach', { answer_id: 'a' }],
    ]);
  });

  it('rejects with the app’s own error', async () => {
    const error = { code: 'context_full', message: 'Too long.', hint: 'Shorten it.', details: null };
    mockIPC(() => {
      throw error;
    });
    const refused = await tauri.messageSend('c', hello, () => {}).catch((e: unknown) => e);
    expect(refused).toBeInstanceOf(BackendError);
    expect((refused as BackendError).api).toEqual(error);
  });

  it('words a failure of the shell itself and keeps its text for a report', async () => {
    mockIPC(() => {
      throw 'stop not allowed. Permissions associated with this command: allow-stop';
    });
    const refused = (await tauri.chatList().catch((e: unknown) => e)) as BackendError;
    expect(refused.api.code).toBe('internal');
    expect(refused.api.details).toContain('not allowed');
  });
});
