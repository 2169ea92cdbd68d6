package pyrunner

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"saltern/master/internal/pyframe"
	"saltern/master/value"
)

// saltTypes generates values and packs them as Salt does. For each value it prints the argument
// that a runner of Salt's own master gets, and the result that a client gets. For packed results,
// it prints how a client sees them.
const saltTypes = `
import collections, datetime, json, random, sys
import salt.payload
question = json.load(sys.stdin)
draw = random.Random(question.get("seed"))
texts = ["", "a=b", "\u00e4", "\u65e5\u672c", "1", "None", "x" * 300, "\0", "\n"]

def key():
    return draw.choice([draw.choice(texts), draw.randrange(-9, 9), True, None, 1.5])

def generate(depth):
    kind = draw.randrange(14 if depth else 9)
    if kind == 0:
        return draw.choice([None, True, False])
    if kind == 1:
        return draw.choice([0, -1, 2**63 - 1, -2**63, 2**64 - 1, 2**64, -2**63 - 1, 10**40, 20261129055906639594])
    if kind == 2:
        return draw.choice([0.0, -0.0, 1e308, 5e-324, float("inf"), -float("inf"), float("nan"), draw.random()])
    if kind == 3:
        return draw.choice([b"", b"abc", b"\xff\xfe", bytes(range(256))])
    if kind == 4:
        return datetime.datetime(draw.randrange(1900, 2100), draw.randrange(1, 13), 28, 1, 2, 3, draw.randrange(10**6))
    if kind == 5:
        return datetime.date(2020, draw.randrange(1, 13), 1)
    if kind < 9:
        return draw.choice(texts)
    some = [generate(depth - 1) for _ in range(draw.randrange(4))]
    if kind == 9:
        return some
    if kind == 10:
        return tuple(some)
    if kind == 11:
        return {draw.choice(texts), draw.randrange(9)}
    return (dict if kind == 12 else collections.OrderedDict)((key(), x) for x in some)

def shown(value):
    return repr(value)

if "packed" in question:
    answers = [shown(salt.payload.loads(bytes.fromhex(p), encoding="utf-8")) for p in question["packed"]]
else:
    answers = []
    for _ in range(question["count"]):
        packed = salt.payload.dumps(generate(4), use_bin_type=True)
        got = salt.payload.loads(packed, encoding="utf-8")
        back = salt.payload.loads(salt.payload.dumps(got, use_bin_type=True), encoding="utf-8")
        answers.append({"packed": packed.hex(), "seen": shown(got), "back": shown(back)})
json.dump(answers, sys.stdout)
`

func askTypes(t *testing.T, question map[string]any, answer any) {
	t.Helper()
	in, err := json.Marshal(question)
	if err != nil {
		t.Fatal(err)
	}

	cmd := exec.CommandContext(t.Context(), os.Getenv("SALTERN_PYTHON"), "-I", "-c", saltTypes)
	cmd.Stdin = bytes.NewReader(in)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	if err := json.Unmarshal(out, answer); err != nil {
		t.Fatal(err)
	}
}

// TestTypesAreSalts: a runner gets the arguments that it gets from Salt's own master, and a client the
// results.
func TestTypesAreSalts(t *testing.T) {
	c, dir := setUp(t, false)
	put(t, filepath.Join(dir, "own/types.py"), "def seen(*args):\n    return [list(args), [repr(arg) for arg in args]]\n")
	seed := rand.Uint32()
	var cases []struct{ Packed, Seen, Back string }
	askTypes(t, map[string]any{"seed": seed, "count": 2000}, &cases)

	var args []any
	for _, tt := range cases {
		b, err := hex.DecodeString(tt.Packed)
		if err != nil {
			t.Fatal(err)
		}
		wrapped, err := pyframe.Map(append([]byte("\x81\xa1v"), b...)) // a map of one field
		if err != nil {
			t.Fatalf("%s: %v", tt.Seen, err)
		}
		args = append(args, wrapped.Value("v"))
	}

	ret, err := c.Call(t.Context(), "types.seen", args, value.NewMap())
	if err != nil {
		t.Fatal(err)
	}

	results, seen := ret.([]any)[0].([]any), ret.([]any)[1].([]any)
	var packed, back []string
	for i, tt := range cases {
		if seen[i] != tt.Seen {
			t.Errorf("seed %d: a runner gets %s, of Salt's master %s", seed, seen[i], tt.Seen)
		}
		b, err := pyframe.Pack(results[i])
		if err != nil {
			t.Fatal(err)
		}
		packed = append(packed, hex.EncodeToString(b))
	}

	askTypes(t, map[string]any{"packed": packed}, &back)
	for i, tt := range cases {
		if back[i] != tt.Back {
			t.Errorf("seed %d: a client gets %s, of Salt's master %s", seed, back[i], tt.Back)
		}
	}
}
