package io.memoryd.client;

/**
 * An invalid setting that the client detected before any call. The message says which value is wrong and what to do.
 */
public final class SettingsException extends RuntimeException {
    SettingsException(String message) {
        super(message);
    }

    SettingsException(String message, Throwable cause) {
        super(message, cause);
    }
}
