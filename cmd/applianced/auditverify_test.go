package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"saltern/internal/audit"
	"saltern/supervisor/status"
)

// verifyCopies runs the verb on a copy of a node's files.
func verifyCopies(t *testing.T, dir, told string) (out string, code int) {
	t.Helper()
	args := []string{"audit", "verify", "--node", "n1", "--dir", "node=" + dir}
	if told != "" {
		args = append(args, "--against", "-")
	}

	cmd := rootCommand()
	var b bytes.Buffer
	cmd.SetArgs(args)
	cmd.SetOut(&b)
	cmd.SetErr(&b)
	cmd.SetIn(strings.NewReader(told))
	err := cmd.ExecuteContext(t.Context())
	if err == nil {
		return b.String(), 0
	}

	exit, ok := errors.AsType[exitError](err)
	if !ok {
		return b.String() + err.Error(), status.ExitUnknown
	}

	return b.String(), int(exit)
}

// The exit code says whether something is missing, and the lines where.
func TestAuditVerify(t *testing.T) {
	dir := t.TempDir()
	log := audit.Open(audit.Config{Dir: dir, Node: "n1", Program: "test"})
	for _, key := range []string{"web1", "web2", "web3"} {
		log.Write(t.Context(),
			audit.Record{
				Actor:  audit.Actor{User: "alice", Proof: audit.Login, From: audit.Local},
				Action: "key.accept",
				Object: key,
				Result: audit.OK,
			})
	}

	log.Close()
	heads, err := audit.Heads(audit.Folder{Name: audit.NodeFolder, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}

	told := `time=x level=INFO msg="heads of this node's audit record" heads="` + audit.HeadsText(heads) + `"` + "\n"
	other := `{"time":"2026-11-24T16:00:00Z","action":"audit.heads","object":"n2","detail":"node/acts:900:` +
		strings.Repeat("a", 32) + `"}` + "\n"

	out, code := verifyCopies(t, dir, other+told)
	if code != status.ExitHealthy || !strings.Contains(out, "whole, end proven by standard input") ||
		!strings.Contains(out, "1-4") {
		t.Errorf("%d\n%s", code, out)
	}

	if out, code = verifyCopies(t, dir, ""); code != status.ExitHealthy ||
		!strings.Contains(out, "nobody was told of its end yet") {
		t.Errorf("%d\n%s", code, out)
	}

	if out, code = verifyCopies(t, dir, other); code == status.ExitHealthy {
		t.Errorf("%d\n%s", code, out)
	}

	path := filepath.Join(dir, "acts.jsonl")
	text, err := os.ReadFile(path)
	if err == nil {
		all := bytes.SplitAfter(text, []byte("\n"))
		err = os.WriteFile(path, bytes.Join(all[:3], nil), 0o600)
	}

	if err != nil {
		t.Fatal(err)
	}

	if out, code = verifyCopies(t, dir, told); code != status.ExitUnknown ||
		!strings.Contains(out, "FAULT node/acts: record 4 is missing at the end: standard input was told of record 4") {
		t.Errorf("%d\n%s", code, out)
	}

	if err := os.WriteFile(path, bytes.Replace(text, []byte("web2"), []byte("web9"), 1), 0o600); err != nil {
		t.Fatal(err)
	}

	if out, code = verifyCopies(t, dir, ""); code != status.ExitUnknown ||
		!strings.Contains(out, "FAULT node/acts: acts.jsonl:3: record 3 was changed") {
		t.Errorf("%d\n%s", code, out)
	}
}
