/// Names of all commands of the window.
const COMMANDS: &[&str] = &[
    "app_info",
    "model_state",
    "model_choose",
    "model_use_demo",
    "chat_list",
    "chat_open",
    "chat_rename",
    "chat_delete",
    "chat_restore",
    "message_send",
    "message_regenerate",
    "generation_attach",
    "generation_stop",
    "link_open",
];
