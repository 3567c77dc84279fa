// Prints the path and the first line of each result of a search.

import { argv } from "node:process";

import { connect } from "@memoryd/client";
import { SearchMode, type SearchResult } from "@memoryd/client/v1";

const client = connect();
const { results } = await client.search({ query: argv[2] ?? "", mode: SearchMode.KEYWORD });
const lines = results.map((result: SearchResult): string => {
  const [line = ""] = result.snippet.split("\n");
  return `${result.path}: ${line}`;
});
console.log(lines.join("\n"));
await client.close();
