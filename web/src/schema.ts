/** The index of the page: what is there at once. */

import * as contract from "./contract";

export interface Graph extends contract.Graph {
  /** Its place in the index, which addresses name it by. */
  index: number;
}

export interface Index extends Omit<contract.Index, "graphs"> {
  graphs: Graph[];
}

export function readIndex(raw: unknown): Index {
  const index = contract.readIndex(raw);
  const graphs = index.graphs.map((graph, place) => ({
    ...graph,
    index: place,
    key: graph.key || `graph ${place}`,
  }));
  return { ...index, graphs };
}
