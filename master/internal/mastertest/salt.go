package mastertest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"os"
	"os/exec"
	"testing"

	"saltern/master/msgpack"
	"saltern/master/value"
	"saltern/test/check"
)

// AskSalt runs a Python script with Salt's library. It writes questions as JSON to the script's
// standard input, and decodes the script's output into answer.
func AskSalt(t testing.TB, script string, questions, answer any) {
	t.Helper()
	in, err := json.Marshal(questions)
	check.Must(t, err)
	cmd := exec.CommandContext(t.Context(), SaltPython(t), script)
	var out, errs bytes.Buffer
	cmd.Stdin = bytes.NewReader(in)
	cmd.Stdout = &out
	cmd.Stderr = &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, errs.String())
	}
	check.Must(t, json.Unmarshal(out.Bytes(), answer))
}

// SaltPython returns the path of a Python that has Salt's library. It skips the test if there is
// none.
func SaltPython(t testing.TB) string {
	p := os.Getenv("SALTERN_PYTHON")
	if p == "" {
		t.Skip("SKIPPED: set SALTERN_PYTHON to a Python that has the Salt library to test what only Python can do")
	}
	return p
}

// SaltFrame returns an event in the form in which Salt's Python tools write it to the pull socket.
func SaltFrame(t testing.TB, tag string, data *value.Map) []byte {
	t.Helper()
	packed, err := msgpack.Marshal(data, msgpack.Modern)
	check.Must(t, err)
	frame, err := msgpack.Marshal(value.NewMap("head", value.NewMap(), "body", append([]byte(tag+"\n\n"), packed...)),
		msgpack.Modern)
	check.Must(t, err)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)
}
