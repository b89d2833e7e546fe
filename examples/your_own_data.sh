#!/usr/bin/env bash
# From two folders of images to a deployed model: your_own_data.sh SOURCE TARGET OUT [adapt options]
# UNLABELLED=1 skips `evaluate`, for a target without class folders.
set -euo pipefail
source=$1 target=$2 out=$3
shift 3
data=()
[ -n "${DIAL_DATA:-}" ] && data=(--data "$DIAL_DATA") # for names like office31:amazon

dial adapt "$source" "$target" --out "$out" --resume "${data[@]}" "$@"
dial predict "$out" "$target" --out "$out/predictions.csv" --top "${data[@]}"
if [ -z "${UNLABELLED:-}" ]; then
  dial evaluate "$out" "$target" "${data[@]}"
fi
for suffix in onnx pt2 safetensors; do
  dial export "$out" "$out/exported.$suffix"
done
dial report "$out"
