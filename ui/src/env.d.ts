/** True in development and test builds, where `?fake=SCENARIO` may replace the back end. */
declare const __FAKE__: boolean;
