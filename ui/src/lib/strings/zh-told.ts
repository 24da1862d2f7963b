/**
 * Sentences that the app itself sends, in Chinese. The app sends English only, so they are known by their English words as they stand in its
 * sources, with names in braces for what differs. A sentence that is not here is shown as it came: better true in English than guessed.
 */

export const sentences: Record<string, string> = {
  'This chat does not exist any more.': '这个对话已不存在。',
  'This answer does not exist any more.': '这个回答已不存在。',
  'This message does not exist any more.': '这条消息已不存在。',
  'These saved instructions do not exist any more.': '这些已保存的指令已不存在。',
  'This model is no longer there.': '这个模型已不在原处。',
  'This work is no longer in the list.': '这项任务已不在列表中。',
  '{name} is in use.': '{name} 正在使用中。',
  'Something is being done with {name} already.': '已有任务正在处理 {name}。',
  'The folder {folder}, where the download of {name} is, is not there.':
    '{name} 的下载所在的文件夹 {folder} 不存在。',
  'This chat already has an answer being written.': '这个对话正在写回答。',
  'An answer is being written.': '正在写回答。',
  'Too many answers are waiting for their turn already.': '等待中的回答太多了。',
  'No model is ready to answer.': '没有可以回答的模型。',
  '{path} is damaged.': '{path} 已损坏。',
  '{file} was written by a newer version of FaStar.': '{file} 由更新版本的 FaStar 写入。',
  'There is no home folder to keep chats in.': '没有可存放对话的主文件夹。',
  'FaStar made a mistake of its own at {place}.': 'FaStar 自身在 {place} 处出错。',
  'FaStar could not start a thread.': 'FaStar 无法启动线程。',
  'The disk is full: nothing more can be saved in {file}.': '磁盘已满：无法再保存到 {file}。',
  '{file} cannot be written.': '无法写入 {file}。',
  '{file} is in use by another program.': '{file} 正被其他程序使用。',
  '{file} could not be read or written.': '无法读写 {file}。',
  'The disk is full: {path} could not be written.': '磁盘已满：无法写入 {path}。',
  '{path} cannot be opened or written: no permission.': '没有权限打开或写入 {path}。',
  '{path} does not exist.': '{path} 不存在。',
  '{path} could not be read or written: {error}.': '无法读写 {path}：{error}。',
  'Make room on the disk, or check that you may write there, and try again.':
    '请腾出磁盘空间，或检查是否有写入权限，然后重试。',
  'Make room on the disk and try again.': '请腾出磁盘空间后重试。',
  'Make it writable, or choose another folder.': '请设置写入权限，或选择其他文件夹。',
  'Raise the limit (`ulimit -f unlimited`) and start FaStar again.':
    '请提高限制（`ulimit -f unlimited`），然后重新启动 FaStar。',
  '{file} cannot grow: this program may write files of {size} at most.':
    '{file} 无法再增大：此程序最多只能写入 {size} 的文件。',
  '{path} cannot grow: the limit on the size of a file is reached.':
    '{path} 无法再增大：已达到文件大小的上限。',
  'What comes over http can be read and changed on the way. If this mirror has an https address, use that.':
    '通过 http:// 传输的内容在途中可能被读取和篡改。如果该镜像有 https:// 地址，请改用它。',
  '{asked} threads were asked for and this program may use {allowed} processors; {started} are started, for more would only wait. {best} threads would be faster.':
    '要求 {asked} 个线程，而此程序可使用 {allowed} 个处理器；已启动 {started} 个，再多也只会互相等待。{best} 个线程会更快。',
  '{asked} threads were asked for and this program may use {allowed} processors. {best} threads would be faster.':
    '要求 {asked} 个线程，而此程序可使用 {allowed} 个处理器。{best} 个线程会更快。',
  '{asked} threads were asked for and this program is granted the time of {quota} processors. {best} threads would be faster.':
    '要求 {asked} 个线程，而此程序只分到 {quota} 个处理器的时间。{best} 个线程会更快。',
  'Use another model first.': '请先改用其他模型。',
  'Wait until that has ended, or stop it first.': '请等它结束，或先将它停止。',
  'Connect the disk it is on and resume, or cancel the download.': '请连接它所在的磁盘后继续，或取消下载。',
  'Stop that one first.': '请先停止那一个。',
  'A repair fetches just what is damaged again.': '修复只会重新下载损坏的部分。',
  'It does not say which repository it was made from, so nothing can be fetched again: download, copy or convert the model again.':
    '它没有写明来自哪个仓库，因此无法重新获取损坏的部分：请重新下载、复制或转换该模型。',
  '{name} is in use by another FaStar{process}.': '{name} 正被另一个 FaStar{process} 使用。',
  'Close that one, or let it use another model first.': '请先关闭那一个，或让它改用其他模型。',
  'Wait until it is written, or stop it first.': '请等它写完，或先将它停止。',
  'Wait until it is written, or let it be stopped.': '请等它写完，或让它停止。',
  'Wait until some of them are written, or stop them first.': '请等其中一些写完，或先将它们停止。',
  'Choose a model file, or use the demo model.': '请选择模型文件，或使用演示模型。',
  'Choose another model file, or use the demo model.': '请选择其他模型文件，或使用演示模型。',
  'Start FaStar again: it sets the damaged file aside and keeps it.':
    '请重新启动 FaStar：它会将损坏的文件移开并保留。',
  'Check the path, or choose another folder.': '请检查路径，或选择其他文件夹。',
  'Update FaStar, or set FASTAR_DATA_DIR to another folder.':
    '请更新 FaStar，或将 FASTAR_DATA_DIR 设为其他文件夹。',
  'Use that one, or set FASTAR_DATA_DIR to another folder.':
    '请使用那一个，或将 FASTAR_DATA_DIR 设为其他文件夹。',
  'Set FASTAR_DATA_DIR to a folder you can write in.': '请将 FASTAR_DATA_DIR 设为可写入的文件夹。',
  'Your chats are safe. Try again, or start FaStar again.': '你的对话完好无损。请重试，或重新启动 FaStar。',
  'The system may be out of memory or processes.': '系统的内存或进程数可能已耗尽。',
  'The model file may be damaged. Try again, or choose another model file.':
    '模型文件可能已损坏。请重试，或选择其他模型文件。',
  'Close other programs, or choose a smaller expert cache.': '请关闭其他程序，或选择较小的专家缓存。',
  'The local server is set up in the window of FaStar.': '本地服务器在 FaStar 的窗口中设置。',
  'Port {port} is in use by another program.': '端口 {port} 正被其他程序使用。',
  'Choose another port, or end that program: it is tried again by itself.':
    '请选择其他端口，或结束那个程序：之后会自动重试。',
  'It is in {folder} now.': '现在位于 {folder}。',
  '{name} needs {needed} more in {folder}, and {free} are free there.':
    '{name} 在 {folder} 还需要 {needed}，那里只有 {free} 空闲。',
  'Make room there and try again, or cancel: the model stays where it is.':
    '请在那里腾出空间后重试，或取消：模型会留在原处。',
  'The conversation needs {needed} tokens and this model has room for {context}. Start a new chat or send a shorter message.':
    '这个对话需要 {needed} 个 token，而这个模型最多容纳 {context} 个。请开始新对话，或发送更短的消息。',
  'The message is empty.': '消息为空。',
  'The disk of {folder} was not measured, because it is nearly full.':
    '没有测量 {folder} 所在的磁盘，因为它快满了。',
  'The disk of {folder} cannot be measured: its file system reads through memory only.':
    '无法测量 {folder} 所在的磁盘：它的文件系统只通过内存读取。',
  'The message has {bytes} bytes, and {limit} is the limit.': '消息有 {bytes} 字节，上限是 {limit} 字节。',
  'The message has {count} files, and {limit} is the limit.': '消息有 {count} 个文件，上限是 {limit} 个。',
  'The file has {bytes} bytes, and {limit} is the limit.': '文件有 {bytes} 字节，上限是 {limit} 字节。',
  'The instructions have {bytes} bytes, and {limit} is the limit.':
    '指令有 {bytes} 字节，上限是 {limit} 字节。',
  'The title is empty.': '标题为空。',
  'The instructions are empty.': '指令为空。',
  'This is no file of chats that FaStar has exported.': '这不是 FaStar 导出的对话文件。',
  'This is no file of chats that FaStar has exported: {error}.': '这不是 FaStar 导出的对话文件：{error}。',
  'This file was exported by a newer version of FaStar. Update FaStar to import it.':
    '这个文件由更新版本的 FaStar 导出。请更新 FaStar 后再导入。',
  'Only an answer at the end of the chat, with some words, can be continued.':
    '只能继续对话末尾且已有内容的回答。',
  'This model cannot record which experts it takes.': '这个模型无法记录它使用的专家。',
  'The access token contains characters that no token has. Copy it again.':
    '访问令牌包含令牌不会有的字符。请重新复制。',
  'The folder for models was given when FaStar was started (FASTAR_MODELS_DIR). Start it without to choose another one.':
    '模型文件夹已在启动 FaStar 时指定（FASTAR_MODELS_DIR）。要选择其他文件夹，启动时请不要指定。',
  'The folder for models cannot be chosen in the browser. Set FASTAR_MODELS_DIR before you start `fastar serve`, or use the desktop app.':
    '无法在浏览器中选择模型文件夹。请在启动 `fastar serve` 之前设置 FASTAR_MODELS_DIR，或使用桌面应用。',
  'The download needs {needed} more, and {folder} has {free} free. Free some space or choose another folder.':
    '下载还需要 {needed}，而 {folder} 只有 {free} 可用。请腾出空间或选择其他文件夹。',
  '{folder} is full: {missing} more are needed. Everything so far is kept; free some space and the download goes on from there.':
    '{folder} 已满：还需要 {missing}。已下载的内容都会保留；腾出空间后下载会从断点继续。',
  '{folder} is not writable ({source}). Choose another folder.':
    '{folder} 不可写入（{source}）。请选择其他文件夹。',
  'FaStar ended unexpectedly while opening your chats. They were read again and are whole. From before every change of their form there is a copy beside them.':
    'FaStar 在打开对话时意外结束。对话已重新读取，完好无损。每次更改格式之前的副本都保存在旁边。',
  'FaStar ended unexpectedly while loading {name}. It is not loaded by itself until that has worked again: choose it under Models to try, or check its file there first.':
    'FaStar 在加载 {name} 时意外结束。在它成功加载之前不会再自动加载：可在“模型”中选择它重试，或先在那里检查文件。',
  'FaStar ended unexpectedly while writing an answer in “{title}”. What was written is there: let it go on with Continue.':
    'FaStar 在“{title}”中写回答时意外结束。已写的内容还在：可用“继续”接着写。',
  'FaStar ended unexpectedly while writing an answer. What was written is there: let it go on with Continue.':
    'FaStar 在写回答时意外结束。已写的内容还在：可用“继续”接着写。',
  'FaStar ended unexpectedly while downloading {title}. What has arrived is kept: resume it under Models.':
    'FaStar 在下载 {title} 时意外结束。已下载的内容会保留：请在“模型”中继续。',
  'FaStar ended unexpectedly while checking {title}. Check it again under Models.':
    'FaStar 在检查 {title} 时意外结束。请在“模型”中重新检查。',
  'FaStar ended unexpectedly while repairing {title}. Repair it again under Models.':
    'FaStar 在修复 {title} 时意外结束。请在“模型”中重新修复。',
  'FaStar ended unexpectedly while moving {title}. One whole model is there at any moment: move it again under Models.':
    'FaStar 在移动 {title} 时意外结束。完整的模型始终存在：请在“模型”中重新移动。',
  'The file with your chats was damaged, so a new one was begun. The old file is kept as {path}.':
    '存放对话的文件已损坏，因此新建了一个。旧文件保存为 {path}。',
  'The settings could not be read, so the defaults are used. The old file is kept as {path}.':
    '无法读取设置，因此使用默认值。旧文件保存为 {path}。',
  '{path} cannot be written, so FaStar begins without your chats and settings and keeps nothing after it ends. Make the folder writable, or set FASTAR_DATA_DIR to another one.':
    '无法写入 {path}，因此 FaStar 启动时没有你的对话和设置，结束后也不会保留任何内容。请将该文件夹设为可写，或将 FASTAR_DATA_DIR 设为其他文件夹。',
  'Stopped; what has arrived is kept.': '已停止；已下载的内容会保留。',
  'An expert cache of {wanted} does not fit into the {have} of memory that are available; it was reduced to {size}.':
    '{wanted} 的专家缓存超出了可用的 {have} 内存，已减小到 {size}。',
  'An expert cache of {wanted} bytes is too small to compute a single token; it was raised to {bytes} bytes, which hold {experts} experts.':
    '{wanted} 字节的专家缓存连一个 token 都无法计算，已增大到 {bytes} 字节，可容纳 {experts} 个专家。',
  'Nothing to mend in {name}.': '{name} 没有需要修复的内容。',
  'Every weight is as it was made: {size} read.': '所有权重都与制作时一致：已读取 {size}。',
  'One damaged part of {name} was fetched again.': '已重新下载 {name} 中 1 个损坏的部分。',
  '{parts} damaged parts of {name} were fetched again.': '已重新下载 {name} 中 {parts} 个损坏的部分。',
  'The newest version, of 31 July, with a drafter for speculative decoding.':
    '最新版本（7 月 31 日），带有用于推测解码的草稿模型。',
  'The version of 27 June, with a drafter for speculative decoding.':
    '6 月 27 日的版本，带有用于推测解码的草稿模型。',
  'The first version, of 24 April.': '最初的版本（4 月 24 日）。',
  'Made by the FaStar research project, in its older file format. Exact for conversations of up to 2,048 tokens.':
    '由 FaStar 研究项目以较旧的文件格式制作。对话不超过 2,048 个 token 时结果精确。',
};

/** What a setting must be. */
export const values: Record<string, string> = {
  'a whole number from {min} to {max}': '必须是 {min} 到 {max} 之间的整数',
  'a whole number from {min} on': '必须是不小于 {min} 的整数',
  'a number from {min} to {max}': '必须是 {min} 到 {max} 之间的数字',
  'true or false': '必须是 true 或 false',
  'it is too long': '无法使用：太长',
  'it is not a whole web address, with https:// or http:// at its beginning':
    '无法使用：不是以 https:// 或 http:// 开头的完整网址',
  'it does not begin with https:// or http://': '无法使用：没有以 https:// 或 http:// 开头',
  'it contains a name or password; enter a token instead': '无法使用：包含用户名或密码；请改用令牌',
};

type Rule = [pattern: RegExp, names: string[], text: string];

/** The most exact one first: the one with the most fixed words. */
function rules(table: Record<string, string>): Rule[] {
  const fixed = (key: string) => key.replace(/\{\w+\}/g, '').length;
  return Object.entries(table)
    .sort(([a], [b]) => fixed(b) - fixed(a))
    .map(([key, text]) => {
      const names = [...key.matchAll(/\{(\w+)\}/g)].map((match) => match[1] ?? '');
      const parts = key.split(/\{\w+\}/).map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'));
      return [new RegExp(`^${parts.join('(.+?)')}$`, 's'), names, text];
    });
}

function translated(text: string, among: Rule[]): string | null {
  for (const [pattern, names, chinese] of among) {
    const match = pattern.exec(text);
    if (match)
      return chinese.replace(/\{(\w+)\}/g, (_, name: string) => match[names.indexOf(name) + 1] ?? '');
  }
  return null;
}

const sentenceRules = rules(sentences);
const valueRules = rules(values);

export function told(sentence: string): string {
  const setting = /^The setting `(\w+)` (?:must be|cannot be used:) (.+)\.$/s.exec(sentence);
  if (setting) {
    const what = translated(setting[2] ?? '', valueRules);
    return what === null ? sentence : `设置项 \`${setting[1]}\` ${what}。`;
  }
  return translated(sentence, sentenceRules) ?? sentence;
}
