/** What a package of AOTInductor accepts of its inputs, and the constants that it holds. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { type Compile, type PackageConstant, type PackageContents, type PackageInput, readPackageChunk } from "../contract";
import { useChunk } from "../data";
import { Loaded } from "../parts";
import { type Column, DataTable } from "../table";
import { brief, bytes, paragraph, plural } from "../text";

export function PackageParts({ compile }: { compile: Compile }): JSX.Element {
  const chunk = useChunk(compile.package, readPackageChunk);
  return (
    <Loaded chunk={chunk} none="What the package accepts was not recorded.">
      {(found) => (
        <>
          <Accepted found={found} count={compile.guard_count} />
          <Constants constants={found.constants} />
        </>
      )}
    </Loaded>
  );
}

function Accepted({ found, count }: { found: PackageContents; count: number }): JSX.Element {
  return (
    <>
      <h3>What the package accepts</h3>
      <p class="prose">
        {plural(count, "demand")} on {plural(found.inputs.length, "input")}. The package checks them only where
        AOTI_RUNTIME_CHECK_INPUTS=1 is set; with other inputs it may compute anything.
      </p>
      <table class="plain package-inputs">
        <thead>
          <tr>
            <th scope="col">Input</th>
            <th scope="col">Type</th>
            <th scope="col">Sizes</th>
            <th scope="col">Strides</th>
            <th scope="col">Device</th>
          </tr>
        </thead>
        <tbody>
          {found.inputs.map((one, place) => (
            <InputRow key={place} input={one} place={place} />
          ))}
        </tbody>
      </table>
      {found.sizes.length > 0 && (
        <p class="prose mono muted">
          {paragraph(found.sizes.map((size) => `${size.name} = ${size.expression}`).join("\n"), 2000)}
        </p>
      )}
    </>
  );
}

function InputRow({ input, place }: { input: PackageInput; place: number }): JSX.Element {
  const device = [input.device, input.aligned_to ? `aligned to ${bytes(input.aligned_to)}` : ""];
  return (
    <tr>
      <th scope="row" class="mono">
        {place} {brief(input.name, 60)}
      </th>
      <td class="mono">{brief(input.dtype, 40)}</td>
      <td class="mono">[{brief(input.sizes.join(", "))}]</td>
      <td class="mono">[{brief(input.strides.join(", "))}]</td>
      <td class="mono">{brief(device.filter(Boolean).join(", "), 60)}</td>
    </tr>
  );
}

const COLUMNS: Column<PackageConstant>[] = [
  { id: "name", title: "Constant", width: 22, value: (one) => one.name },
  { id: "kind", title: "Kind", width: 10, value: (one) => one.kind },
  { id: "dtype", title: "Type", width: 9, value: (one) => one.dtype },
  { id: "shape", title: "Size", width: 14, value: (one) => one.shape },
  { id: "device", title: "Device", width: 8, value: (one) => one.device },
  { id: "bytes", title: "Bytes", width: 9, numeric: true, value: (one) => one.bytes, show: (one) => bytes(one.bytes) },
  { id: "written", title: "Changed by", width: 22, optional: true, value: (one) => one.written_by },
];

function Constants({ constants }: { constants: PackageConstant[] }): JSX.Element {
  const [filter, setFilter] = useState("");
  const total = constants.reduce((sum, one) => sum + one.bytes, 0);
  return (
    <>
      <h3>Constants</h3>
      {constants.length === 0 ? (
        <p class="muted">The package holds none.</p>
      ) : (
        <DataTable
          label="Constants"
          rows={constants}
          columns={COLUMNS}
          filter={filter}
          onFilter={constants.length > 8 ? setFilter : undefined}
          controls={<span>{bytes(total)} in all</span>}
          empty="The package holds none."
          minWidth={640}
        />
      )}
    </>
  );
}
