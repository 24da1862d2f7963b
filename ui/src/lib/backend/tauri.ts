/** The desktop window: commands and channels of the Rust shell. */
import { Channel, invoke } from '@tauri-apps/api/core';
import type {
  AppInfo,
  Attachment,
  CachePlan,
  Chat,
  ChatSummary,
  Draft,
  Found,
  GenerationEvent,
  Hardware,
  Job,
  Library,
  LogPage,
  MachinePlan,
  ModelMemory,
  ModelState,
  Monitor,
  Preset,
  ServerState,
  Setting,
  TokenCount,
  TraceFile,
} from '../api/types';
import { strings } from '../strings';
import { type Backend, type OnEvent, toBackendError } from './backend';

async function call<T>(name: string, args: Record<string, unknown> = {}): Promise<T> {
  try {
    return await invoke<T>(name, args);
  } catch (error) {
    throw toBackendError(error, strings.errors.unexpected);
  }
}

async function listen(name: string, args: Record<string, unknown>, onEvent: OnEvent): Promise<void> {
  const channel = new Channel<GenerationEvent>();
  channel.onmessage = onEvent;
  await call<null>(name, { ...args, on_event: channel });
}

export const tauri: Backend = {
  appInfo: () => call<AppInfo>('app_info'),
  pageShown: async () => void (await call('page_shown')),
  modelState: () => call<ModelState>('model_state'),
  modelMemory: () => call<ModelMemory | null>('model_memory'),
  modelChoose: async () => void (await call('model_choose')),
  modelUseDemo: async () => void (await call('model_use_demo')),
  modelLibrary: () => call<Library>('model_library'),
  modelFolderChoose: async () => void (await call('model_folder_choose')),
  modelFolderMove: async () => void (await call('model_folder_move')),
  modelUse: async (file) => void (await call('model_use', { file })),
  modelShow: async (file) => void (await call('model_show', { file })),
  modelDelete: (file) => call<number>('model_delete', { file }),
  modelVerify: async (file) => void (await call('model_verify', { file })),
  modelRepair: async (file) => void (await call('model_repair', { file })),
  downloadStart: async (request) => void (await call('download_start', { request })),
  downloadResume: async (file) => void (await call('download_resume', { file })),
  jobList: () => call<Job[]>('job_list'),
  jobPause: async (id) => void (await call('job_pause', { id })),
  jobResume: async (id) => void (await call('job_resume', { id })),
  jobCancel: async (id, keep) => void (await call('job_cancel', { id, keep })),
  jobDismiss: async (id) => void (await call('job_dismiss', { id })),
  chatList: () => call<ChatSummary[]>('chat_list'),
  chatOpen: (id) => call<Chat>('chat_open', { id }),
  chatRename: async (id, title) => void (await call('chat_rename', { id, title })),
  chatDelete: async (id) => void (await call('chat_delete', { id })),
  chatRestore: async (id) => void (await call('chat_restore', { id })),
  chatPin: async (id, pinned) => void (await call('chat_pin', { id, pinned })),
  chatMove: async (id, folder) => void (await call('chat_move', { id, folder })),
  chatSystemSet: async (id, text) => void (await call('chat_system_set', { id, text })),
  chatSearch: (query) => call<Found[]>('chat_search', { query }),
  chatExport: (id, format) => call<string | null>('chat_export', { id, format }),
  chatImport: () => call<number | null>('chat_import'),
  presetList: () => call<Preset[]>('preset_list'),
  presetSave: (id, name, text) => call<Preset>('preset_save', { id, name, text }),
  presetDelete: async (id) => void (await call('preset_delete', { id })),
  draftNew: () => call<Draft>('draft_new'),
  draftSave: async (chat_id, draft) => void (await call('draft_save', { chat_id, draft })),
  notify: async (title, text) => void (await call('notify', { title, text })),
  attachmentPick: () => call<Attachment[]>('attachment_pick'),
  messageCount: (chat_id, message) => call<TokenCount>('message_count', { chat_id, message }),
  messageSend: (chat_id, message, onEvent) => listen('message_send', { chat_id, message }, onEvent),
  messageEdit: (message_id, message, onEvent) => listen('message_edit', { message_id, message }, onEvent),
  messageRegenerate: (answer_id, thinking, onEvent) =>
    listen('message_regenerate', { answer_id, thinking }, onEvent),
  answerContinue: (answer_id, onEvent) => listen('answer_continue', { answer_id }, onEvent),
  answerEdit: (answer_id, text) => call<Chat>('answer_edit', { answer_id, text }),
  versionShow: (message_id) => call<Chat>('version_show', { message_id }),
  generationAttach: (answer_id, onEvent) => listen('generation_attach', { answer_id }, onEvent),
  generationStop: async (answer_id) => void (await call('generation_stop', { answer_id })),
  settingList: () => call<Setting[]>('setting_list'),
  settingSet: (key, value) => call<Setting[]>('setting_set', { key, value }),
  settingReset: (key) => call<Setting[]>('setting_reset', { key }),
  cachePlan: (cache_bytes) => call<CachePlan | null>('cache_plan', { cache_bytes }),
  modelReload: async (stop) => void (await call('model_reload', { stop })),
  serverState: () => call<ServerState>('server_state'),
  serverKey: () => call<string>('server_key'),
  serverKeyNew: () => call<ServerState>('server_key_new'),
  monitor: () => call<Monitor>('monitor'),
  traceStart: () => call<TraceFile>('trace_start'),
  traceStop: () => call<TraceFile | null>('trace_stop'),
  hardware: () => call<Hardware>('hardware'),
  machinePlan: () => call<MachinePlan>('machine_plan'),
  machineMeasure: (again) => call<MachinePlan>('machine_measure', { again }),
  logRead: (after) => call<LogPage>('log_read', { after }),
  diagnostics: () => call<string>('diagnostics'),
  linkOpen: async (url) => void (await call('link_open', { url })),
  onConnection: () => {},
};
