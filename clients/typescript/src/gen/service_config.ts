// @generated from clients/service_config.json
export const serviceConfig = {
  "loadBalancingConfig": [{ "round_robin": {} }],
  "methodConfig": [
    {
      "name": [
        { "service": "memoryd.v1.MemoryService" },
        { "service": "memoryd.v1.EntryService" }
      ],
      "retryPolicy": {
        "maxAttempts": 5,
        "initialBackoff": "0.2s",
        "maxBackoff": "0.35s",
        "backoffMultiplier": 2,
        "retryableStatusCodes": ["UNAVAILABLE"]
      }
    },
    {
      "name": [
        { "service": "memoryd.v1.MemoryService", "method": "FlushDecision" },
        { "service": "memoryd.v1.EntryService", "method": "SuggestCapture" }
      ],
      "retryPolicy": {
        "maxAttempts": 4,
        "initialBackoff": "0.1s",
        "maxBackoff": "0.2s",
        "backoffMultiplier": 2,
        "retryableStatusCodes": ["UNAVAILABLE"]
      }
    },
    {
      "name": [
        { "service": "memoryd.v1.MemoryService", "method": "SessionAppend" }
      ]
    }
  ]
}
;
