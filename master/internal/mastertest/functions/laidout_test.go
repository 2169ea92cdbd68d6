package functions

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/master/client"
	"saltern/master/internal/local"
	"saltern/master/internal/mastertest"
	"saltern/master/jobs"
	"saltern/master/value"
	"saltern/test/check"
)

// readers reads jobs as Salt's library does: by its returner, by a minion object, and in the folder of the job.
const readers = `
import os
import salt.loader
import salt.minion
import salt.utils.jid

def by_returner(jid):
    returners = salt.loader.returners(__opts__, {})
    load = returners["local_cache.get_load"](jid)
    listed = returners["local_cache.get_jids"]()
    newest = returners["local_cache.get_jids_filter"](100)
    return [load.get("fun"), load.get("Minions"), returners["local_cache.get_jid"](jid), jid in listed,
            jid in [job["JID"] for job in newest]]
def by_minion(jid):
    returners = salt.minion.MasterMinion(__opts__, states=False, rend=False).returners
    return sorted(returners[__opts__["master_job_cache"] + ".get_jid"](jid))
def by_folder(jid):
    folder = salt.utils.jid.jid_dir(jid, os.path.join(__opts__["cachedir"], "jobs"), __opts__["hash_type"])
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []
def clean(copy):
    opts = dict(__opts__, cachedir=copy)
    salt.loader.returners(opts, {})["local_cache.clean_old_jobs"]()
`

// TestPythonReadsJobsOfSegments: functions in Python find jobs and returns that are no files.
func TestPythonReadsJobsOfSegments(t *testing.T) {
	t.Parallel()
	python := mastertest.SaltPython(t)
	dir := t.TempDir()
	check.Must(t, os.WriteFile(filepath.Join(dir, "readers.py"), []byte(readers), 0o644))
	r := mastertest.Start(t, "saltern_renderer_python: "+python+"\nrunner_dirs: ["+dir+"]\n")

	newJob := func(minutes int) string {
		jid := jobs.FromTime(time.Now().Add(time.Duration(minutes) * time.Minute))
		for _, id := range []string{"a", "b"} {
			load := value.NewMap("jid", jid, "id", id, "fun", "test.arg", "fun_args", []any{}, "return", "of "+id, "out", "txt")
			stored, err := r.Parts.Jobs.SaveReturn(t.Context(), jobs.ReturnOf(load))
			if err != nil || !stored {
				t.Fatal(stored, err)
			}
		}
		return jid
	}
	for i, c := range []struct{ function, want string }{
		{"by_returner", "[test.arg <nil> {a: of a, b: of b} true true]"},
		{"by_minion", "[a b]"},
		{"by_folder", "[.load.p .minions.p a b jid]"},
	} {
		t.Run(c.function, func(t *testing.T) {
			jid := newJob(i)
			folder, err := jobs.Folder(r.Path("cache", "jobs"), r.Parts.Options.HashType, jid)
			check.Must(t, err)
			if _, err := os.Stat(folder); err == nil {
				t.Error("the job is in files before anybody has asked")
			}
			v, err := r.Parts.Runs.Call(t.Context(), "readers."+c.function, []any{jid}, nil)
			check.Must(t, err)
			list := v.([]any)
			for i, e := range list {
				if m, ok := e.(*value.Map); ok {
					list[i] = fmt.Sprintf("{a: %s, b: %s}", m.Map("a").Str("return"), m.Map("b").Str("return"))
				}
			}
			if got := fmt.Sprint(list); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}

	t.Run("jobs.files of all jobs", func(t *testing.T) {
		jids := []string{newJob(7), newJob(8)}
		v, err := r.Parts.Runs.Call(t.Context(), "jobs.files", []any{"all"}, nil)
		check.Must(t, err)
		for _, none := range [][]any{nil, {""}} {
			if v, err := r.Parts.Runs.Call(t.Context(), "jobs.files", none, nil); err == nil {
				t.Errorf("without a job: %v", v)
			}
		}
		if v != r.Path("cache", "jobs") {
			t.Errorf("folder %v", v)
		}
		for _, jid := range jids {
			folder, err := jobs.Folder(r.Path("cache", "jobs"), r.Parts.Options.HashType, jid)
			check.Must(t, err)
			if b, err := os.ReadFile(filepath.Join(folder, "b", "return.p")); err != nil || !strings.Contains(string(b), "of b") {
				t.Errorf("%s: %q, %v", jid, b, err)
			}
		}
	})

	t.Run("clean_old_jobs of a copy", func(t *testing.T) {
		jid := jobs.FromTime(time.Now().Add(-10 * time.Minute))
		folder, err := jobs.Folder(r.Path("cache", "jobs"), r.Parts.Options.HashType, jid)
		check.Must(t, err)
		check.Must(t, os.MkdirAll(folder, 0o755)) // before the first return, as for the state of a batch
		check.Must(t, os.WriteFile(filepath.Join(folder, ".batch.p"), []byte("\x80"), 0o600))
		load := value.NewMap("jid", jid, "id", "a", "fun", "test.arg", "fun_args", []any{}, "return", "of a")
		_, err = r.Parts.Jobs.SaveReturn(t.Context(), jobs.ReturnOf(load))
		check.Must(t, err)
		_, err = r.Parts.Runs.Call(t.Context(), "jobs.files", []any{"all"}, nil)
		check.Must(t, err)

		copied := t.TempDir()
		check.Must(t, os.CopyFS(filepath.Join(copied, "jobs"), os.DirFS(r.Path("cache", "jobs"))))
		all, err := filepath.Glob(filepath.Join(copied, "jobs", "*", "*"))
		check.Must(t, err)
		_, err = r.Parts.Runs.Call(t.Context(), "readers.clean", []any{copied}, nil)
		check.Must(t, err)
		left, err := filepath.Glob(filepath.Join(copied, "jobs", "*", "*"))
		check.Must(t, err)
		if len(all) < 5 || fmt.Sprint(left) != fmt.Sprint(all) {
			t.Errorf("of %v Salt has left %v", all, left)
		}
	})

	t.Run("jobs.files", func(t *testing.T) {
		jid := newJob(9)
		v, err := r.Parts.Runs.Call(t.Context(), "jobs.files", []any{jid}, nil)
		check.Must(t, err)
		b, err := os.ReadFile(filepath.Join(fmt.Sprint(v), "a", "return.p"))
		if err != nil || !strings.Contains(string(b), "of a") {
			t.Errorf("%q, %v", b, err)
		}
		unknown := jobs.FromTime(time.Now().Add(-time.Hour))
		if v, err := r.Parts.Runs.Call(t.Context(), "jobs.files", []any{unknown}, nil); err == nil {
			t.Errorf("of an unknown job: %v", v)
		}
	})
}

// TestToolFindsLostReturn: a tool finds a return in the master's segments whose event it has not got, and the master
// writes no files of other minions for it.
func TestToolFindsLostReturn(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, "")
	r.AcceptedMinion("found", "min6")
	r.AcceptedMinion("other", "min7")
	r.AcceptedMinion("absent", "min8")
	tool := client.New(client.Config{
		Interface:  r.Host,
		RetPort:    r.Parts.Options.RetPort,
		SockDir:    r.Path("run"),
		CacheDir:   r.Path("cache"),
		MasterUser: local.CurrentUser(),
		User:       local.CurrentUser(),
		Timeout:    500 * time.Millisecond,
		Gather:     500 * time.Millisecond,
		Log:        slog.New(slog.DiscardHandler),
	})
	defer tool.Close()

	got := map[string]string{}
	jid := ""
	err := tool.Run(t.Context(), client.Request{
		Target:     []any{"found", "absent"},
		TargetType: "list",
		Fun:        "test.ping",
	}, func(j client.Job) {
		jid = j.JID
		for _, id := range []string{"found", "other"} {
			ret := value.NewMap("jid", j.JID, "id", id, "fun", "test.ping", "return", "of "+id)
			_, err := r.Parts.Jobs.SaveReturn(t.Context(), jobs.ReturnOf(ret)) // without an event
			check.Must(t, err)
		}
	}, func(ret client.Return) bool {
		got[ret.ID] = fmt.Sprint(ret.Ret)
		if ret.Missing {
			got[ret.ID] = "missing"
		}
		return true
	})
	check.Must(t, err)
	if want := "map[absent:missing found:of found]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}

	folder, err := jobs.Folder(r.Path("cache", "jobs"), r.Parts.Options.HashType, jid)
	check.Must(t, err)
	if _, err := os.Stat(filepath.Join(folder, "other")); err == nil {
		t.Error("the return of another minion became a file")
	}
}
