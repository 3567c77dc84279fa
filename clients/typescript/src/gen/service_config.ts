// @generated from clients/service_config.json
export const serviceConfig = {
  "methodConfig": [
    {
      "name": [
        { "service": "memoryd.v1.MemoryService" },
        { "service": "memoryd.v1.EntryService" }
      ],
      "retryPolicy": {
        "maxAttempts": 5,
        "initialBackoff": "0.2s",
        "maxBackoff": "1s",
        "backoffMultiplier": 2,
        "retryableStatusCodes": ["UNAVAILABLE"]
      }
    }
  ]
}
;
