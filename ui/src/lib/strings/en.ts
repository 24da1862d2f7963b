/** Every word a person reads, in English. Plain words; never blame the person. The other catalogues have this one's type. */
import type { Hardware, Job, JobState, LogLine, ModelFile, Setting, Thinking } from '../api/types';
import type { JobPhase } from '../api/types';
import { bytes, count, duration, remaining } from '../format';
import { stuck } from '../job';

const plurals = new Intl.PluralRules('en');
/** With the number before it, as it is said of one or of several. */
const some = (n: number, one: string, several: string) =>
  `${count(n)} ${plurals.select(n) === 'one' ? one : several}`;

export const en = {
  app: 'FaStar',
  units: {
    instant: '<1 ms',
    milliseconds: (n: string) => `${n} ms`,
    seconds: (n: string) => `${n} s`,
    minutesSeconds: (minutes: string, seconds: string) => `${minutes} min ${seconds} s`,
    underMinute: 'under 1 min',
    minutes: (n: number) => `${n} min`,
    hours: (n: number) => `${n} h`,
    days: (n: number) => some(n, 'day', 'days'),
    /** What is over, after the larger unit; nothing when nothing is. */
    and: (n: number, unit: (n: number) => string) => (n === 0 ? '' : ` ${unit(n)}`),
    percent: (n: number) => `${n} %`,
    /** Makes a heading the first sentence of a paragraph. */
    stop: '.',
  },
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
    /** In a language that the demo model knows. */
    suggestions: ['Tell me a story about a fox.', 'Write a poem about the sea.', 'What can you do?'],
    suggestionsLabel: 'Things to try',
  },
  /** What this computer would do with the real model. */
  plan: {
    title: (name: string) => `${name} on this computer`,
    titleShort: 'The real model on this computer',
    close: 'Close',
    see: 'See the plan',
    get: 'Get the model',
    fits: (name: string) => `${name} fits this computer.`,
    unknown: (name: string) => `Whether ${name} fits this computer cannot be said.`,
    memoryMissing: (name: string) => `${name} needs more memory than is free here.`,
    diskMissing: (name: string, peak: string) => `${name} needs ${peak} of free disk.`,
    about: (least: string, most: string) => `About ${least} to ${most} tokens/s.`,
    factMemory: (free: string) => `${free} of memory free`,
    factDisk: (free: string) => `${free} of disk free`,
    factProcessor: (threads: number) => some(threads, 'thread', 'threads'),
    factNpu: 'NPU found, not used yet',
    factNoNpu: 'no NPU',
    speed: (least: string, most: string) => `About ${least} to ${most} tokens/s`,
    speedWhy: (measured: string, memory: string, disk: string, percent: number) =>
      `An estimate: the model was not run. ${measured}: memory reads ${memory}/s, the disk ${disk}/s. About ${percent} % of the experts asked for should be in memory.`,
    justNow: 'Measured just now',
    ago: (time: string) => `Measured ${time} ago`,
    measureAgain: 'Measure again',
    measuring: 'Measuring…',
    measuringMore: 'Memory and disk are read for a moment. Nothing is downloaded.',
    noSpeed: 'How fast it would be is not known',
    noSpeedMore: 'Memory and disk were not measured.',
    noMemory: 'Not enough memory',
    noMemoryMore: 'Close other programs and look again, or use a computer with more memory.',
    memoryWhy: (dense: string, cache: string, slots: string, experts: string, percent: number) =>
      `${dense} for what every word needs, ${cache} for ${slots} of ${experts} experts (${percent} %). The others are read from the disk when they are needed.`,
    diskWhy: (peak: string, rest: string) => `Needs up to ${peak} while it is downloaded, and ${rest} then.`,
    untried: 'FaStar has not been tried with the real files yet.',
    into: (folder: string) => `Into ${folder}`,
    download: (size: string) => `Download ${size}`,
    others: 'Other models',
    there: (state: string) => `This model: ${state}.`,
  },
  composer: {
    label: 'Your message',
    placeholder: 'Write a message',
    send: 'Send',
    stop: 'Stop',
    long: (characters: number) =>
      `${count(characters)} characters. A text this long may not fit the model’s context.`,
    queue: 'Send when the answer is done',
    thinking: 'Thinking',
    thinkingNames: { off: 'No thinking', on: 'Thinking', max: 'Thinking, max' } satisfies Record<
      Thinking,
      string
    >,
    noThinking: 'The demo model cannot think first',
    thinkingHelp:
      'Whether the model thinks before it answers. Changing to or from the most thinking makes it read the whole conversation again.',
    tokens: (n: number) => some(n, 'token', 'tokens'),
    unkept: (why: string) => `What you are writing is only in this window at the moment. ${why}`,
    contextWarning: (percent: number) =>
      `With this message the context is ${percent} % full. When it is full, answers end early: start a new chat for a new subject.`,
    contextOver: (over: number, size: number) =>
      `This is ${count(over)} tokens more than the ${count(size)} the model can hold. Shorten the message, remove a file, or start a new chat.`,
  },
  queue: {
    label: 'Waiting messages',
    waiting: 'Sent when the answer is done',
    stopped: 'Not sent yet',
    send: 'Send now',
    edit: 'Edit the waiting message',
    drop: 'Do not send it',
    files: (n: number) => some(n, 'file', 'files'),
  },
  attach: {
    pick: 'Attach text files',
    list: 'Attached files',
    remove: (name: string) => `Remove ${name}`,
    drop: 'Drop text files here to attach them',
    dropFolder: (name: string, most: number) =>
      `${name} is a folder. Drop the text files in it instead, up to ${count(most)} at once.`,
    dropModel: (name: string) => `${name} is a model, not a text. Models are chosen in the Models panel.`,
    pasted: (n: number) => `Pasted text${n === 1 ? '' : ` ${n}`}.txt`,
    size: (size: number, tokens: number | null) =>
      tokens === null ? bytes(size) : `${bytes(size)}, ${count(tokens)} tokens`,
    show: (name: string) => `Show ${name}`,
    hide: (name: string) => `Hide ${name}`,
    noText: (name: string) => `${name} is not a text file (or not in UTF-8), so the model cannot read it.`,
    empty: (name: string) => `${name} is empty.`,
    tooLarge: (name: string, size: number, most: number) =>
      `${name} has ${count(size)} bytes, and ${count(most)} is the limit.`,
    messageTooLong: (size: number, most: number) =>
      `The message has ${count(size)} bytes with its files, and ${count(most)} is the limit.`,
    tooMany: (files: number, most: number) =>
      `These are ${count(files)} files, and ${count(most)} is the limit for one message.`,
  },
  versions: {
    label: 'Versions of this message',
    of: (at: number, all: number) => `${at} / ${all}`,
    spoken: (at: number, all: number) => `Version ${at} of ${all}`,
    previous: 'Previous version',
    next: 'Next version',
  },
  edit: {
    own: 'Edit',
    answer: 'Edit the answer',
    field: 'Text of the message',
    send: 'Send',
    save: 'Save',
    cancel: 'Cancel',
    help: 'The old version stays.',
    edited: 'Edited by you',
  },
  thoughts: {
    running: 'Thinking…',
    soFar: 'Thoughts so far',
    done: (ms: number | null) => (ms === null ? 'Thoughts' : `Thought for ${duration(ms)}`),
  },
  timing: {
    show: 'Where the time went',
    button: (time: string) => `${time}: where the time went`,
    prompt: (read: number, all: number) =>
      read === all
        ? `Reading the prompt, ${count(all)} tokens`
        : `Reading the prompt, ${count(read)} of ${count(all)} tokens (the others were read before)`,
    writing: (tokens: number) => `Writing, ${count(tokens)} tokens`,
    thinking: (tokens: number) => `of these, ${count(tokens)} to think`,
    disk: 'of this, waiting for the disk',
    first: 'First word after',
    speed: 'Speed',
    model: 'Model',
    bar: (prompt: string, writing: string) => `Prompt ${prompt}, writing ${writing}`,
  },
  find: {
    label: 'Find in this chat',
    placeholder: 'Find in this chat',
    previous: 'Previous match',
    next: 'Next match',
    close: 'Close the search',
    none: 'Nothing found',
    of: (at: number, all: number) => `${count(at)} of ${count(all)}`,
    many: (at: number, all: number) => `${count(at)} of the first ${count(all)}`,
  },
  search: {
    label: 'Search all chats',
    placeholder: 'Search all chats',
    clear: 'Clear the search',
    searching: 'Searching…',
    none: 'Nothing found in your chats.',
    results: 'What was found',
    some: (n: number) => `${some(n, 'place', 'places')} found`,
    from: (who: string) => `${who}:`,
    you: 'You',
    model: 'Answer',
  },
  folders: {
    pinned: 'Pinned',
    pin: 'Pin',
    unpin: 'Unpin',
    move: 'Move to a folder…',
    title: 'Move to a folder',
    out: 'No folder',
    name: 'Name of a new folder',
    make: 'Move there',
    cancel: 'Cancel',
    unfold: (name: string) => `Folder ${name}`,
  },
  files: {
    markdown: 'Export as Markdown…',
    json: 'Export as JSON…',
    import: 'Import chats…',
    exportAll: 'Export all chats…',
    more: 'Import and export',
    exported: (path: string) => `Exported to ${path}`,
    imported: (n: number) => `${some(n, 'chat was', 'chats were')} imported.`,
    dismiss: 'Dismiss',
  },
  instructions: {
    button: 'Instructions',
    set: 'Instructions (set)',
    title: 'Instructions',
    intro: 'What the model should always keep in mind in this chat. It counts from the next answer on.',
    field: 'Instructions for this chat',
    placeholder: 'For example: Answer in short sentences.',
    presets: 'Saved instructions',
    none: 'Nothing saved yet.',
    use: (name: string) => `Use “${name}”`,
    update: (name: string) => `Save the text above as “${name}”`,
    remove: (name: string) => `Delete “${name}”`,
    name: 'Name',
    saveAs: 'Save these under a name',
    save: 'Save',
    apply: 'Use in this chat',
    cancel: 'Cancel',
    close: 'Close',
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
    queued: (ahead: number) => `Waiting for ${some(ahead, 'other answer', 'other answers')}…`,
    prefill: (done: number, total: number) => `Reading the prompt: ${count(done)} of ${count(total)} tokens`,
    prefillLeft: (seconds: number) =>
      seconds < 60 ? 'less than a minute left' : `about ${remaining(seconds)} left`,
    continue: 'Continue',
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
  notices: {
    answered: (took: string) => `The answer is there after ${took}`,
    failed: 'An answer could not be finished',
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
    contextTokens: (n: number) => some(n, 'token', 'tokens'),
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
    moveFolder: 'Move models…',
    moveFolderHelp: 'Moves all whole models to another folder, also on another disk.',
    use: 'Use',
    actionOn: (action: string, name: string) => `${action}: ${name}`,
    verify: 'Check every byte',
    show: 'Show in folder',
    delete: 'Delete…',
    deleteAsk: (name: string, size: string) => `Delete ${name} and free ${size}?`,
    deleteLinkAsk: (name: string, path: string) => `Take ${name} out of the list? Its file stays: ${path}`,
    linked: (size: string, path: string) => `${size}, linked from ${path}`,
    deleteYes: 'Delete',
    deleteNo: 'Keep it',
    deleted: (name: string, freed: number) => `${name} was deleted; ${bytes(freed)} are free again.`,
    incomplete: (done: string, total: string | null) =>
      total === null ? `Left over from a download, ${done}` : `Incomplete: ${done} of ${total}`,
    unusable: 'Cannot be used',
    get: 'Get a model',
    realIntro:
      'FaStar leaves a model on the disk and reads the parts it needs; it is made for computers with 64 GB of memory. It has not been tried with the real files yet.',
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
    sizesWithDrafter: (download: string, peak: string | null) =>
      `With the drafter ${download}${peak === null ? '' : `, up to ${peak} of the disk`}.`,
    publishedAs: (repository: string) => `Published as ${repository}.`,
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
    kind: { download: 'Downloading', verify: 'Checking', repair: 'Repairing', move: 'Moving' },
    queued: 'Waiting for its turn',
    paused: 'Paused',
    failed: {
      download: 'The download stopped',
      verify: 'The check found something',
      repair: 'The repair stopped',
      move: 'The move stopped; the model is where it was',
    },
    phase: (phase: JobPhase): string => {
      switch (phase.phase) {
        case 'resolving':
          return 'Looking at what there is';
        case 'downloading':
          return 'Downloading';
        case 'stalled':
          return `No data for ${count(phase.seconds)} s; trying again`;
        case 'retrying':
          return `Waiting ${phase.seconds} s before trying again. ${phase.reason}`;
        case 'converting':
          return 'Converting';
        case 'verifying':
          return 'Checking';
        case 'copying':
          return 'Copying';
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
        running: stuck(job) ? `nothing arrives, ${percent} % downloaded` : `${percent} % downloaded`,
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
      const kinds = { download: 'download', verify: 'check', repair: 'repair', move: 'move' };
      return `The ${kinds[job.kind]} of ${job.title} ${states[job.state]}.`;
    },
    downloadSettings: 'Mirror, proxy, speed limit and token…',
  },
  settings: {
    title: 'Settings',
    close: 'Close',
    button: 'Settings',
    keys: 'Ctrl ,',
    sections: 'Sections',
    section: {
      appearance: 'Appearance',
      answers: 'Answers',
      performance: 'Performance',
      models: 'Models',
      server: 'Server',
      logs: 'Logs',
    } satisfies Record<Setting['section'], string>,
    reading: 'Reading the settings…',
    unreadable: 'The settings could not be read',
    disconnected: 'Settings can be changed again when FaStar is back.',
    more: 'More',
    /** Which of them count for the commands of a terminal too. */
    terminal: {
      answers: 'For this window and “fastar serve”. “fastar chat” has options of its own.',
      performance: 'For this window and “fastar serve”. The other commands have options of their own.',
      models: 'The folder and how models are fetched count for the commands in a terminal as well.',
      server: 'For this window. “fastar serve” has options of its own.',
    } as Partial<Record<Setting['section'], string>>,
    names: {
      theme: 'Colours',
      language: 'Language',
      text_size: 'Text size',
      notifications: 'Notifications',
      thinking: 'Thinking',
      temperature: 'Temperature',
      top_p: 'Top-p',
      top_k: 'Top-k',
      min_p: 'Min-p',
      repetition_penalty: 'Repetition penalty',
      presence_penalty: 'Presence penalty',
      frequency_penalty: 'Frequency penalty',
      max_tokens: 'Longest answer',
      seed: 'Seed',
      expert_cache_bytes: 'Memory for experts',
      threads: 'Threads',
      context_tokens: 'Longest conversation',
      read_ahead: 'Read ahead',
      exact_arithmetic: 'Exact arithmetic',
      keep_awake: 'Stay awake',
      model: 'Model',
      models_folder: 'Folder for models',
      download_bytes_per_second: 'Speed limit',
      download_endpoint: 'Mirror',
      download_proxy: 'Proxy',
      download_token: 'Access token',
      download_resume_at_start: 'Resume at start',
      server: 'Local server',
      server_port: 'Port',
      server_lan: 'For this network too',
      server_origins: 'Allowed pages',
      log_level: 'What is written down',
    },
    /** What a setting does, where its key is known; else in the app's own words. */
    help: (_key: string, told: string): string => told,
    units: {
      text_size: '%',
      threads: 'threads',
      max_tokens: 'tokens',
      context_tokens: 'tokens',
      expert_cache_bytes: 'GB',
      download_bytes_per_second: 'MB/s',
    },
    options: {
      theme: { system: 'As the system', light: 'Light', dark: 'Dark' },
      thinking: { off: 'Off', on: 'On', max: 'Most' },
      /** Each language by its own name: who cannot read the one that is set finds theirs. */
      language: { system: 'Automatic', en: 'English', zh: '简体中文' },
      log_level: { error: 'Errors', warn: 'Warnings', info: 'Events', debug: 'Details' },
    },
    automatic: 'Automatic',
    none: {
      model: 'The built-in demo',
      models_folder: 'The folder beside your chats',
      download_bytes_per_second: 'No limit',
      max_tokens: 'No limit',
      seed: 'Random',
    },
    scope: (setting: Setting): string => {
      if (setting.given !== null) return 'Given when FaStar was started; counts until it is closed';
      if (setting.pending) return 'Waits for a reload of the model';
      switch (setting.scope) {
        case 'live':
          return 'At once';
        case 'next_message':
          return 'From the next message';
        case 'reload_model':
          return 'After a reload of the model';
        case 'restart_app':
          return 'From the next start';
      }
    },
    inUse: (value: string) => `The model in use was loaded with ${value}.`,
    on: 'this on',
    off: 'this off',
    reset: 'Back to the default',
    forget: 'Forget it',
    actionOn: (action: string, name: string) => `${action}: ${name}`,
    /** The app names a setting by its key, which nobody sees here. */
    told: (problem: string, name: string): string => problem.replace(/^The setting `\w+`/, name),
    notANumber: (name: string) => `${name} must be a number.`,
    tokenStored: 'A token is stored',
    showModels: 'Show models',
    cache: {
      slider: 'Memory for experts, slider',
      value: (size: string) => size,
      automatic: (gigabytes: string) => `Automatic: ${gigabytes}`,
      experts: (slots: string, experts: string, percent: number) =>
        `Room for ${slots} of ${experts} experts (${percent} %).`,
      dense: (size: string) => `Other weights take ${size} in any case.`,
      speed: (value: string) =>
        `About ${value} tokens/s. An estimate from what was measured since the model was loaded.`,
      noSpeed: 'How fast that would be can be estimated once the model has written an answer.',
      inUse: (size: string) => `The model in use was loaded with ${size}.`,
      whole:
        'The model in use is in memory as a whole and needs no cache. This counts for models on the disk.',
      noModel: 'What fits can be said once a model is loaded.',
    },
    waiting: (names: string[]) =>
      names.length === 1
        ? `${names[0]} counts once the model is loaded again.`
        : `These count once the model is loaded again: ${names.join(', ')}.`,
    reload: (n: number) => `Reload to apply (${some(n, 'change', 'changes')})`,
    reloading: 'The model is being loaded…',
    reloadAsk: 'An answer is being written. Stop it, and keep what is there?',
    reloadWait: 'Not now',
    reloadStop: 'Stop it and reload',
  },
  server: {
    runs: 'Running',
    off: 'Off',
    fails: 'Not running',
    here: 'On this computer',
    network: 'In this network',
    noNetwork: 'This computer is in no network now, so no other one can reach it.',
    key: 'Key',
    keyHidden: (begins: string) => `Hidden; begins with ${begins}`,
    copyKey: 'Copy the key',
    copyAddress: 'Copy the address with the key',
    copyNetwork: 'Copy the address for the network with the key',
    newKey: 'New key…',
    newKeyAsk: 'Make a new key? Programs and pages with the old one are refused from then on.',
    newKeyYes: 'Make a new key',
    newKeyNo: 'Keep it',
  },
  monitor: {
    title: 'Monitor',
    button: 'Monitor',
    keys: 'Ctrl Shift M',
    close: 'Close',
    reading: 'Looking…',
    disconnected: 'The pictures go on by themselves when FaStar is back.',
    idle: 'Idle',
    unknown: '–',
    minute: 'last 3 minutes',
    speed: 'Answer',
    perSecond: (value: string) => `${value} tokens/s`,
    readingPrompt: (value: string) => `Prompt: ${value} tokens/s`,
    hits: 'Experts at hand',
    hitsSince: (value: string) => `${value} since the start`,
    disk: 'From the disk',
    bytesPerSecond: (value: string) => `${value}/s`,
    readSoFar: (value: string) => `${value} for experts so far`,
    cpu: 'Processors',
    processors: (n: number) => `of ${some(n, 'processor', 'processors')}`,
    memory: 'Memory',
    memoryUsed: (used: string) => `FaStar uses ${used}.`,
    memoryOf: (used: string, budget: string) => `FaStar uses ${used} of the ${budget} it may use.`,
    memoryParts: (dense: string, experts: string) =>
      `Of that, ${dense} are weights that every token needs and ${experts} are experts.`,
    map: 'Experts in memory',
    mapWords: (layers: string, experts: string, resident: string) =>
      `Map of ${layers} layers with ${experts} experts each; ${resident} experts are in memory.`,
    mapAxes: 'A row for each layer, a cell for each expert',
    onDisk: 'on the disk',
    cold: 'in memory',
    hot: 'used a lot',
    used: 'in use',
    filled: (filled: string, slots: string, experts: string) =>
      `${filled} of ${slots} places are filled; the model has ${experts} experts.`,
    whole: 'Everything is in memory',
    wholeMore:
      'This model is small enough. Nothing is read from the disk while it writes, and every expert is at hand.',
    loading: 'The model is being loaded.',
    noModel: 'No model is loaded.',
    layers: 'Time in each layer',
    layersWords: (layers: number, sum: string, waited: string) =>
      `Time in each of ${layers} layers for a token: ${sum} together, of which ${waited} are waiting for experts.`,
    layersAxes: (layers: number, sum: string) => `${layers} layers, ${sum} for a token`,
    layersNothing: 'Nothing was computed while this was watched. Ask the model something.',
    computing: 'computing',
    waitingFor: (time: string) => `waiting for experts (${time})`,
    trace: 'Recording',
    traceHelp:
      'Records which experts every token takes, without any text, so that “fastar simulate” can try other cache sizes on it.',
    record: 'Record',
    stop: 'Stop',
    recording: (size: string) => `Recording, ${size} so far`,
    recorded: (size: string) => `Recorded, ${size}`,
    traceCut: 'The disk refused the rest.',
    copyCommand: 'Copy the command that reads it',
  },
  help: {
    title: 'Help',
    button: 'Help and shortcuts',
    keys: '?',
    close: 'Close',
    sections: 'Sections',
    section: { shortcuts: 'Shortcuts', computer: 'This computer', log: 'Log', report: 'Report' },
    shortcuts: [
      {
        name: 'Chats',
        keys: [
          ['Ctrl N', 'New chat'],
          ['F2', 'Rename the open chat'],
          ['Del', 'Delete the selected chat'],
          ['Ctrl Z', 'Bring back the chat that was just deleted'],
          ['↑ ↓', 'Walk through the list'],
          ['Ctrl K', 'Search in all chats'],
          ['Ctrl F', 'Find in the open chat'],
        ],
      },
      {
        name: 'Messages',
        keys: [
          ['Enter', 'Send'],
          ['Shift Enter', 'New line'],
          ['Esc', 'Stop the answer'],
        ],
      },
      {
        name: 'Windows',
        keys: [
          ['Ctrl ,', 'Settings'],
          ['Ctrl Shift M', 'Monitor'],
          ['?', 'This help, while nothing is being written'],
          ['Esc', 'Close'],
        ],
      },
    ] as { name: string; keys: [keys: string, what: string][] }[],
    computer: {
      looking: 'Looking at the computer…',
      unknown: 'an unknown amount',
      system: 'System',
      processor: 'Processor',
      instructions: {
        baseline: 'It has no AVX2, so computing is slow.',
        avx2: 'Computes with AVX2.',
        avx512: 'Computes with AVX-512.',
      } satisfies Record<Hardware['instructions'], string>,
      threads: 'Threads',
      threadsOf: (threads: number, cores: number, processors: number) =>
        `${count(threads)} used, of ${some(processors, 'processor', 'processors')} on ${some(cores, 'core', 'cores')}`,
      threadsWhy: (h: Hardware): string =>
        h.quota !== null && h.threads < h.cores
          ? `This program is granted the time of ${h.quota} processors; more threads would wait for each other.`
          : 'One for each core is fastest: two processors of one core share what computes.',
      memory: 'Memory',
      memoryOf: (available: string, all: string) => `${available} may be used now, of ${all}`,
      memoryWhy: 'What other programs hold, and limits set for this one, are counted.',
      models: 'Disk for models',
      data: 'Disk for chats',
      free: (size: string) => `${size} free`,
      diskSpeed: 'Speed of the disk',
      diskSpeedUnknown: 'Not measured',
      diskSpeedMeasured:
        'As it was measured for the first screen; “fastar bench” takes longer and is more exact.',
      diskSpeedWhy: 'The monitor shows what is read while a model writes; “fastar bench” measures it.',
      npu: 'Neural processor',
      npuFound: 'Found',
      npuNone: 'Not found',
      npuWhy: 'FaStar does not use one yet.',
      app: 'Version',
      doctor: '“fastar doctor” prints the same in a terminal.',
    },
    log: {
      label: 'Lines of the log',
      show: 'Show',
      upTo: {
        error: 'errors',
        warn: 'warnings too',
        info: 'events too',
        debug: 'everything',
      } satisfies Record<LogLine['level'], string>,
      level: { error: 'Error', warn: 'Warning', info: 'Event', debug: 'Detail' } satisfies Record<
        LogLine['level'],
        string
      >,
      reading: 'Reading the log…',
      nothing: 'Nothing of that kind was written down.',
      notWritten: 'The file for the log cannot be written; these lines are in memory only.',
      copyPath: 'Copy the path of the file',
      choose: 'Choose what is written down',
    },
    report: {
      about:
        'This text helps to find out what is wrong. It holds no message, no answer and no secret. Nothing is sent anywhere; look at it, copy it, and put it where you like.',
      making: 'Putting it together…',
      copy: 'Copy the report',
      label: 'The report',
    },
  },
  more: {
    button: 'Settings, help and more',
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
  /** A sentence that the app sends, in this language where it is known. */
  told: (sentence: string): string => sentence,
};

export type Strings = typeof en;
