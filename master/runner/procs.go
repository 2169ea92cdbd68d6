package runner

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"saltern/internal/durable"
	"saltern/master/internal/pyframe"
	"saltern/master/jobs"
	"saltern/master/redact"
	"saltern/master/value"
)

// Bounds of the files in which Salt's library notes the runners that are at work.
const (
	maxProcs     = 1000
	maxProcBytes = 1 << 20
)

// runnersOfPython returns the runners that Salt's library has noted in cacheDir as being in progress
// and whose process runs: those of Python's salt-run, and orchestrations that are steps of
// others. The form is that of Env.Running (salt/client/mixins.py low, salt/utils/master.py
// get_running_jobs).
func runnersOfPython(cacheDir string) (found []*value.Map) {
	dir := filepath.Join(cacheDir, "proc")
	entries, _ := os.ReadDir(dir) // without the folder no runner is noted
	for _, e := range entries[:min(len(entries), maxProcs)] {
		if !jobs.Valid(e.Name()) {
			continue
		}
		packed, err := durable.Read(filepath.Join(dir, e.Name()), maxProcBytes)
		if err != nil {
			continue // it has ended
		}

		run, err := pyframe.Map(packed)
		if err != nil {
			continue
		}
		pid, ok := run.Int("pid")
		if !ok || !runsSalt(pid) {
			continue
		}
		found = append(found, withoutSecrets(run))
	}
	return found
}

// runsSalt reports whether a process runs and, as far as its command line shows, uses Salt.
func runsSalt(pid int64) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && bytes.Contains(text, []byte("salt"))
}

// withoutSecrets returns the note of a runner without the secrets among its arguments.
func withoutSecrets(run *value.Map) *value.Map {
	args := run.List("fun_args")
	named := value.NewMap()
	if n := len(args); n > 0 {
		if m, ok := args[n-1].(*value.Map); ok {
			args, named = args[:n-1], m
		}
	}
	fun := strings.TrimPrefix(run.Str("fun"), "runner.")
	run.Set("fun_args", redact.Of(fun, args, named).FunArgs())
	return run
}

// runners returns the runners in progress on this master, the oldest first, each once.
func (c *call) runners() (all []*value.Map) {
	if c.Running != nil {
		all = c.Running()
	}
	if dir := c.Options.Str("cachedir"); dir != "" {
		all = append(all, runnersOfPython(dir)...)
	}

	slices.SortStableFunc(all, func(a, b *value.Map) int { return strings.Compare(a.Str("jid"), b.Str("jid")) })
	return slices.CompactFunc(all, func(a, b *value.Map) bool { return a.Str("jid") == b.Str("jid") })
}

// inProgress reports whether a runner with this job id is in progress on this master.
func (c *call) inProgress(jid string) bool {
	return slices.ContainsFunc(c.runners(), func(run *value.Map) bool { return run.Str("jid") == jid })
}
