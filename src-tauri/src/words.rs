//! The words of the system's own dialogs, in the languages of the window. The page has its own catalogue (`ui/src/lib/strings`); errors come in English.

use fastar_app::{App, Language};
use tauri::{AppHandle, Manager as _};

/// Every text of the shell that a person with a window reads.
pub(crate) struct Words {
    pub choose_model: &'static str,
    pub models: &'static str,
    pub choose_folder: &'static str,
    pub attach: &'static str,
    pub import: &'static str,
    pub exported: &'static str,
    pub export: &'static str,
    pub close_title: &'static str,
    pub close: &'static str,
    pub keep_downloading: &'static str,
    pub cannot_start: &'static str,
    pub empty_title: &'static str,
    pub empty: &'static str,
    pub keep_waiting: &'static str,
    pub use_title: &'static str,
    pub use_it: &'static str,
    pub not_now: &'static str,
    pub cannot_use: &'static str,
    /// Why the computer does not go to sleep; the desktop shows it.
    pub at_work: &'static str,
    /// Of a model's name, its gigabytes and its folder.
    pub becomes: fn(&str, &str, &str) -> String,
    /// Of the title of the download at work, how many wait behind it, and whether they go on by themselves at the next start.
    pub downloading: fn(&str, usize, bool) -> String,
}

pub(crate) static ENGLISH: Words = Words {
    choose_model: "Choose a model",
    models: "FaStar models",
    choose_folder: "Choose the folder for models",
    attach: "Attach text files",
    import: "Import chats",
    exported: "Chats exported from FaStar",
    export: "Export chat",
    close_title: "Close FaStar?",
    close: "Close FaStar",
    keep_downloading: "Keep downloading",
    cannot_start: "FaStar cannot start",
    empty_title: "FaStar cannot show its window",
    empty: "The window stays empty, although it is drawn without the graphics card. Nothing is lost. Restarting the computer or another \
            version of WebKitGTK may help; until then, `fastar serve` in a terminal shows FaStar in your browser.",
    keep_waiting: "Keep waiting",
    use_title: "Use this model?",
    use_it: "Use it",
    not_now: "Not now",
    cannot_use: "This file cannot be used",
    at_work: "An answer, a download or a check is under way",
    becomes: |name, gigabytes, folder| {
        format!(
            "{name} ({gigabytes} GB) in {folder} becomes the model that answers, in the place of the one in use. It is loaded now, and again at every start."
        )
    },
    downloading: |title, more, by_itself| {
        let (what, goes_on) = match more {
            0 => (
                format!("{title} is being downloaded."),
                "the download goes on",
            ),
            _ => (
                format!("{title} is being downloaded, and {more} more will be."),
                "the downloads go on",
            ),
        };
        let then = match by_itself {
            true => "when FaStar is started again.",
            false => "when you resume it after the next start.",
        };
        format!("{what} What has arrived is kept, and {goes_on} {then}")
    },
};

static CHINESE: Words = Words {
    choose_model: "选择模型",
    models: "FaStar 模型",
    choose_folder: "选择存放模型的文件夹",
    attach: "添加文本文件",
    import: "导入对话",
    exported: "从 FaStar 导出的对话",
    export: "导出对话",
    close_title: "关闭 FaStar？",
    close: "关闭 FaStar",
    keep_downloading: "继续下载",
    cannot_start: "FaStar 无法启动",
    empty_title: "FaStar 无法显示窗口",
    empty: "窗口仍是空白，尽管已不使用显卡绘制。没有任何内容丢失。重新启动电脑或换一个 WebKitGTK 版本可能有帮助；在此之前，可在终端中运行 `fastar serve`，用浏览器打开 FaStar。",
    keep_waiting: "继续等待",
    use_title: "使用此模型？",
    use_it: "使用",
    not_now: "暂不",
    cannot_use: "无法使用此文件",
    at_work: "正在回答、下载或检查",
    becomes: |name, gigabytes, folder| {
        format!(
            "{folder} 中的 {name}（{gigabytes} GB）将取代当前模型来回答。现在加载，以后每次启动时也会加载。"
        )
    },
    downloading: |title, more, by_itself| {
        let what = match more {
            0 => format!("正在下载 {title}。"),
            _ => format!("正在下载 {title}，另有 {more} 项等待下载。"),
        };
        let then = match by_itself {
            true => "下次启动 FaStar 时会继续下载。",
            false => "下次启动后点“继续”即可接着下载。",
        };
        format!("{what}已下载的部分会保留，{then}")
    },
};

/// In the language of the window, as it is set now; in the system's while there is no app.
pub(crate) fn words(handle: &AppHandle) -> &'static Words {
    let app = handle.try_state::<App>();
    match app.map_or_else(Language::of_the_system, |app| app.language()) {
        Language::English => &ENGLISH,
        Language::Chinese => &CHINESE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_languages_name_the_same_things() {
        for words in [&ENGLISH, &CHINESE] {
            let question = (words.becomes)("flash.fst", "160", "/models");
            for part in ["flash.fst", "160 GB", "/models"] {
                assert!(question.contains(part), "{question}");
            }
            for (more, by_itself) in [(0, false), (0, true), (3, false), (3, true)] {
                let question = (words.downloading)("Flash", more, by_itself);
                assert!(question.contains("Flash"), "{question}");
                assert_eq!(question.contains('3'), more == 3, "{question}");
            }
        }
        assert_eq!(
            (CHINESE.downloading)("Flash", 0, true),
            "正在下载 Flash。已下载的部分会保留，下次启动 FaStar 时会继续下载。"
        );
    }
}
