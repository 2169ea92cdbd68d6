package mastertest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"saltern/internal/audit"
	"saltern/test/await"
	"saltern/test/check"
)

// AddFile writes a file below the master's directory. It creates missing directories.
func (r *Master) AddFile(name, text string) {
	r.T.Helper()
	check.Must(r.T, os.MkdirAll(filepath.Dir(r.Path(name)), 0o755))
	check.Must(r.T, os.WriteFile(r.Path(name), []byte(text), 0o644))
}

// AwaitRecords waits until the audit log contains exactly n records of an action, and returns them.
func (r *Master) AwaitRecords(n int, action string) []audit.Record {
	r.T.Helper()
	var p audit.Page
	await.That(r.T, fmt.Sprintf("%d records of %s", n, action), func() bool {
		var err error
		p, err = audit.Read(r.T.Context(), "n1", audit.Query{Action: action}, audit.MasterDir(r.Path("cache")))
		check.Must(r.T, err)
		return len(p.Records) >= n
	})
	if len(p.Records) != n {
		r.T.Fatalf("%d records of %s: %+v", len(p.Records), action, p.Records)
	}
	return p.Records
}

// volatile lists files that change without an attack, or that record attacks.
var volatile = map[string]bool{
	// The master records refusals in the following files.
	"cache/audit": true, "cache/audit/acts.jsonl": true, "cache/audit/strangers.jsonl": true, "cache/audit/jobs.jsonl": true, "cache/audit/users.jsonl": true, "cache/audit/refused.jsonl": true,
	"cache/status.json": true, "cache/status.json.new": true, "cache/health/alive": true, "cache/health/ready": true, "cache/health": true,
}

// Snapshot returns a description of all files in the master's directory: names, types, modes and
// contents.
func (r *Master) Snapshot() map[string]string {
	r.T.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(r.Dir, func(p string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(r.Dir, p)
		if volatile[rel] || strings.HasPrefix(rel, "cache/nonces.journal") ||
			strings.HasPrefix(rel, "cache/jobs.journal") {
			return nil
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}

		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}

		content := ""
		if d.Type().IsRegular() {
			f, err := os.Open(p)
			if err != nil {
				return err
			}
			defer f.Close()

			b, err := io.ReadAll(io.LimitReader(f, 1<<20))
			if err != nil {
				return err
			}

			content = string(b)
		}

		out[rel] = info.Mode().String() + " " + content
		return nil
	})

	check.Must(r.T, err)
	return out
}

// WantUnchanged fails the test if the files in the master's directory differ from snapshot. doing
// describes the steps since the snapshot, for the text of the failure.
func (r *Master) WantUnchanged(doing string, snapshot map[string]string) {
	r.T.Helper()
	after := r.Snapshot()
	for k, v := range after {
		if b, ok := snapshot[k]; !ok {
			r.T.Errorf("%s: %s appeared", doing, k)
		} else if b != v {
			r.T.Errorf("%s: %s changed", doing, k)
		}
	}

	for k := range snapshot {
		if _, ok := after[k]; !ok {
			r.T.Errorf("%s: %s is gone", doing, k)
		}
	}
}
