/** Every word a person reads, in one place. Plain words; never blame the person. */
import type { Job, JobPhase, JobState, ModelFile } from './api/types';
import { bytes, count } from './format';

export const strings = {
  app: 'FaStar',
  sidebar: {
    label: 'Chats',
    newChat: 'New chat',
    newChatKeys: 'Ctrl N',
    open: 'Show chats',
    close: 'Hide chats',
    empty: 'Your chats will be listed here.',
    list: 'Your chats',
    more: (title: string) => `Options for “${title}”`,
    rename: 'Rename',
    renameKeys: 'F2',
    renameField: 'Title of the chat',
    delete: 'Delete',
    deleteKeys: 'Del',
    answering: 'Answer being written',
    today: 'Today',
    yesterday: 'Yesterday',
    week: 'Previous 7 days',
    month: 'Previous 30 days',
  },
  toast: {
    deleted: 'Chat deleted',
    undo: 'Undo',
    dismiss: 'Dismiss',
  },
  welcome: {
    title: 'What’s on your mind?',
    demo: 'You are talking to a tiny demo model. It is here so that you can try the app at once; it tells short stories and knows its limits.',
    demoMore: 'Get the real model',
    real: 'Everything you write stays on this computer.',
    suggestions: ['Tell me a story about a fox.', 'Write a poem about the sea.', 'What can you do?'],
    suggestionsLabel: 'Things to try',
  },
  composer: {
    label: 'Your message',
    placeholder: 'Write a message',
    send: 'Send',
    stop: 'Stop',
    long: (characters: number) =>
      `${count(characters)} characters. A text this long may not fit the model’s context.`,
    busy: 'Wait for the answer to finish, or stop it, to send the next message.',
  },
  message: {
    you: 'You',
    copy: 'Copy',
    copied: 'Copied',
    copyFailed: 'Could not copy',
    regenerate: 'Regenerate',
    showAll: 'Show the whole message',
    showLess: 'Show less',
    waiting: 'Getting ready…',
    waitingForModel: 'Waiting for the model to load…',
    queued: (ahead: number) =>
      ahead === 1 ? 'Waiting for one other answer…' : `Waiting for ${count(ahead)} other answers…`,
    prefill: (done: number, total: number) => `Reading the prompt: ${count(done)} of ${count(total)} tokens`,
    prefillLabel: 'Reading the prompt',
    writing: 'Writing…',
    stopped: 'Stopped',
    stoppedEmpty: 'Stopped before the first word',
    interrupted: 'The app closed while this was being written.',
    failed: 'This answer could not be finished.',
    lengthLimit: 'The answer reached its length limit and ends here.',
    contextFull: 'The model’s context is full, so the answer ends here.',
    newChat: 'Start a new chat',
    emptyAnswer: 'The model ended its answer without writing anything.',
    tooLong: 'This answer is very long; from here on it is shown as plain text.',
    latest: 'Jump to latest',
    log: 'Messages',
    announceStart: 'The answer is being written.',
    announceEnd: (text: string) => `Answer: ${text}`,
    details: 'Details',
  },
  code: {
    copy: 'Copy code',
    plain: 'Text',
    bidi: 'This code contains invisible characters that change the direction of text. It may do something else than it seems to say.',
    table: 'Table',
    block: (language: string) => `Code, ${language}`,
  },
  link: {
    title: 'Open this link?',
    intro: 'The model wrote this link. It leads to:',
    mail: 'The model wrote this address. A message would go to:',
    whole: 'Full address',
    open: 'Open',
    openMail: 'Write a message',
    copy: 'Copy address',
    cancel: 'Cancel',
    bidi: 'The text of this link contains characters that change the direction of text.',
    image: 'Image',
    refused: 'This address is not opened from here',
  },
  status: {
    label: 'Status',
    speed: (value: string) => `${value} tokens/s`,
    firstToken: (value: string) => `first token ${value}`,
    context: (used: number, size: number) => `context ${count(used)} of ${count(size)}`,
    loading: (name: string) => `Loading ${name}…`,
    failed: 'No model loaded',
    disconnected: 'Not connected',
  },
  model: {
    demo: 'Demo model',
    button: (name: string) => `Model: ${name}`,
    loading: (name: string) => `Loading ${name}`,
    loadingMore: 'You can write already; the answer comes when the model is ready.',
    failedTitle: (name: string) => `${name} could not be loaded`,
    parameters: 'Parameters',
    layers: 'Layers',
    experts: 'Experts per layer',
    context: 'Context',
    contextTokens: (n: number) => `${count(n)} tokens`,
    size: 'Size',
    threads: 'Threads',
    file: (path: string) => `The file is ${path}`,
    facts: 'Details',
    summary: (parameters: string, size: string) => `${parameters} parameters, ${size} on the disk.`,
    aboutDemo:
      'A small model to try the app with. It was trained from scratch on simple stories and has exactly the architecture of the real model, about 27,000 times smaller. It answers at once, on any computer, but it knows next to nothing.',
    choose: 'Choose a model file…',
    useDemo: 'Use the demo model',
    webOther: 'To use a file that lies elsewhere, start the server with it:',
    webCommand: 'fastar serve --model model.fst',
    copyCommand: 'Copy command',
  },
  models: {
    title: 'Models',
    close: 'Close',
    inUse: 'In use',
    onDisk: 'On this computer',
    nothing: 'There is no model in this folder yet.',
    folder: (folder: string) => `Models are kept in ${folder}`,
    free: (size: string) => `${size} free`,
    chooseFolder: 'Change folder…',
    use: 'Use',
    actionOn: (action: string, name: string) => `${action}: ${name}`,
    verify: 'Check every byte',
    show: 'Show in folder',
    delete: 'Delete…',
    deleteAsk: (name: string, size: string) => `Delete ${name} and free ${size}?`,
    deleteYes: 'Delete',
    deleteNo: 'Keep it',
    deleted: (name: string, freed: number) => `${name} was deleted; ${bytes(freed)} are free again.`,
    incomplete: (done: string, total: string | null) =>
      total === null ? `Left over from a download, ${done}` : `Incomplete: ${done} of ${total}`,
    unusable: 'Cannot be used',
    get: 'Get a model',
    realIntro:
      'FaStar leaves a model on the disk and reads the parts it needs; it is made for computers with 64 GB of memory. It has not been tried with the real files yet.',
    recommended: 'Recommended',
    have: (download: JobState | null, onDisk: ModelFile | null): string => {
      if (download === 'running') return 'Downloading';
      if (download === 'queued') return 'Waiting';
      if (download === 'paused') return 'Paused';
      if (download === 'failed') return 'Stopped';
      if (onDisk?.condition.condition === 'incomplete') return 'Incomplete';
      return onDisk?.condition.condition === 'unusable' ? 'Cannot be used' : 'On this computer';
    },
    download: 'Download',
    sizes: (download: string, peak: string) =>
      `${download} to download, up to ${peak} of the disk meanwhile.`,
    sizesAsIs: (download: string) => `${download} to download and on the disk.`,
    about: (size: string) => `About ${size}`,
    aboutInside: (size: string) => `about ${size}`,
    downloadAsk: (size: string, repository: string, folder: string) =>
      `Download ${size} from ${repository} to ${folder}?`,
    downloadYes: 'Start the download',
    downloadAnyway: 'Start anyway',
    downloadNo: 'Not now',
    drafter: (size: string) =>
      `With the drafter (${size}), a helper model for faster answers that FaStar does not use yet`,
    room: (needed: string, free: string) => `Needs up to ${needed} there; ${free} are free.`,
    noRoom: (needed: string, free: string) =>
      `Needs up to ${needed} there, and only ${free} are free. Make room, or keep models in another folder.`,
    noRoomWeb: 'FASTAR_MODELS_DIR names another folder when FaStar is started.',
    pause: 'Pause',
    resume: 'Resume',
    cancel: 'Cancel…',
    stop: 'Stop',
    again: 'Try again',
    cancelAsk: (size: string) =>
      `Cancel the download. Keep the ${size} that have arrived, to go on later, or delete them?`,
    cancelAskNothing: 'Cancel this download?',
    cancelKeep: 'Keep them',
    cancelDelete: 'Delete them',
    cancelYes: 'Cancel the download',
    cancelNo: 'Back',
    repair: 'Repair',
    enterToken: 'Enter a token…',
    dismiss: 'Dismiss',
    kind: { download: 'Downloading', verify: 'Checking', repair: 'Repairing' },
    queued: 'Waiting for its turn',
    paused: 'Paused',
    failed: {
      download: 'The download stopped',
      verify: 'The check found something',
      repair: 'The repair stopped',
    },
    phase: (phase: JobPhase): string => {
      switch (phase.phase) {
        case 'resolving':
          return 'Looking at what there is';
        case 'downloading':
          return 'Downloading';
        case 'stalled':
          return 'Nothing arrives; connecting anew';
        case 'retrying':
          return `Waiting ${phase.seconds} s before trying again. ${phase.reason}`;
        case 'converting':
          return 'Converting';
        case 'verifying':
          return 'Checking';
        case 'stopping':
          return 'Stopping';
      }
    },
    amount: (done: string, total: string) => `${done} of ${total}`,
    speed: (rate: string) => `${rate}/s`,
    left: (time: string) => `${time} left`,
    progressOf: (name: string) => `Progress of ${name}`,
    chip: (job: Job, percent: number): string => {
      const states: Record<JobState, string> = {
        queued: 'waits to be downloaded',
        running: `${percent} % downloaded`,
        paused: `download paused at ${percent} %`,
        failed: 'the download stopped',
        done: 'downloaded',
        cancelled: 'cancelled',
      };
      return `${job.title}: ${states[job.state]}. Show models`;
    },
    chipStopped: 'Stopped',
    chipDone: 'Ready',
    disconnected: 'What is shown here may have changed since; it goes on by itself when FaStar is back.',
    announce: (job: Job, begins: boolean): string => {
      const states: Record<JobState, string> = {
        queued: 'waits',
        running: begins ? 'has begun' : 'goes on',
        paused: 'is paused',
        failed: 'has stopped',
        done: 'is finished',
        cancelled: 'was cancelled',
      };
      const kinds = { download: 'download', verify: 'check', repair: 'repair' };
      return `The ${kinds[job.kind]} of ${job.title} ${states[job.state]}.`;
    },
    settings: {
      title: 'Download settings',
      limit: 'Speed limit',
      limitUnit: 'MB/s',
      limitHelp: 'Empty: as fast as it goes. Also works for a download that is running.',
      endpoint: 'Mirror',
      endpointHelp:
        'Empty: Hugging Face, or what HF_ENDPOINT names. Nothing is asked of any other place once a mirror is set.',
      endpointForgets:
        'The stored token was for the address before; it will be forgotten. Enter a new one if this one needs one.',
      proxy: 'Proxy',
      proxyHelp: 'Empty: what the system says.',
      token: 'Access token',
      tokenHelp:
        'Only needed for repositories that ask for one. It is sent to the mirror, or to Hugging Face where there is none, and nowhere else.',
      tokenStored: 'A token is stored',
      tokenForget: 'Forget it',
      tokenForgotten: 'The token will be forgotten.',
      resume: 'Go on with unfinished downloads when FaStar starts',
      save: 'Save',
      saved: 'Saved',
      badLimit: 'The speed limit must be a number above 0, in MB/s.',
    },
  },
  notice: {
    dismiss: 'Dismiss this notice',
  },
  errors: {
    unexpected: 'Something unexpected happened.',
    chatGone: 'This chat is no longer there.',
    openChat: 'The chat could not be opened.',
    listChats: 'Your chats could not be read.',
    disconnectedTitle: 'FaStar is not answering',
    disconnected:
      'The server has stopped or cannot be reached. Your text stays here; this page goes on by itself when the server is back.',
    tryAgain: 'Try again',
    newChat: 'Start a new chat',
    models: 'Show models',
    dismiss: 'Dismiss',
    startTitle: 'FaStar could not start',
  },
};
