// A gRPC server on a Unix socket with configurable responses.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";

import {
  type DescMessage,
  type DescService,
  type MessageInitShape,
  create,
  fromBinary,
  toBinary,
} from "@bufbuild/protobuf";
import {
  type MethodDefinition,
  Server,
  ServerCredentials,
  type ServerUnaryCall,
  type ServerWritableStream,
  type ServiceDefinition,
  type UntypedServiceImplementation,
  type sendUnaryData,
} from "@grpc/grpc-js";
import { type ConnectOptions, type MemorydClient, connect } from "@memoryd/client";
import { EntryService, MemoryService } from "@memoryd/client/v1";

/** The response of a unary call. */
export type Unary = (call: ServerUnaryCall<never, unknown>, answer: sendUnaryData<object>) => void;

/** The response of a streaming call. */
export type Streaming = (call: ServerWritableStream<never, object>) => void;

function definition(service: DescService): ServiceDefinition {
  const methods = service.methods.map((method): [string, MethodDefinition<object, object>] => {
    const write = (schema: DescMessage) => (message: object) =>
      Buffer.from(toBinary(schema, create(schema, message as MessageInitShape<DescMessage>)));
    const read = (schema: DescMessage) => (bytes: Buffer) => fromBinary(schema, bytes);
    return [
      method.name,
      {
        path: `/${service.typeName}/${method.name}`,
        requestStream: false,
        responseStream: method.methodKind === "server_streaming",
        requestSerialize: write(method.input),
        requestDeserialize: read(method.input),
        responseSerialize: write(method.output),
        responseDeserialize: read(method.output),
      },
    ];
  });
  return Object.fromEntries(methods);
}

/** Starts a server with these responses and a client of it; both end with the test. */
export async function served(
  context: TestContext,
  answers: Readonly<Record<string, Unary | Streaming>>,
  options: ConnectOptions = {},
): Promise<MemorydClient> {
  const folder = mkdtempSync(join(tmpdir(), "memoryd-"));
  const address = `unix:${folder}/m.sock`;
  const server = new Server();
  for (const service of [MemoryService, EntryService]) {
    server.addService(definition(service), answers as UntypedServiceImplementation);
  }
  await new Promise<void>((resolve, reject) => {
    server.bindAsync(address, ServerCredentials.createInsecure(), (error) => {
      if (error) {
        reject(error);
      } else {
        resolve();
      }
    });
  });
  const client = connect({ address, ...options });
  context.after(async () => {
    await client.close();
    server.forceShutdown();
    rmSync(folder, { recursive: true });
  });
  return client;
}
