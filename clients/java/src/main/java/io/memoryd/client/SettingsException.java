package io.memoryd.client;

/** What a client refuses before it calls anybody; the message says which value is wrong, and what to do. */
public final class SettingsException extends RuntimeException {
    SettingsException(String message) {
        super(message);
    }

    SettingsException(String message, Throwable cause) {
        super(message, cause);
    }
}
