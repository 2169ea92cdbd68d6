package main

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/master/value"
	"saltern/test/fakemaster"
)

// TestBatchObeysOptions: what the command line says besides --batch reaches the minions, or the target. Salt
// ignores it; with --preview-target it runs the job.
func TestBatchObeysOptions(t *testing.T) {
	fields := []string{"--metadata", "{why: audit}", "--return_config", "alt", "--return_kwargs", "{db: one}", "--module-executors",
		"[sudo]", "--executor-opts", "{user: bob}", "--start-event"}
	const wantFields = "ret_config 'alt', ret_kwargs {'db': 'one'}, metadata {'why': 'audit'}, " +
		"module_executors ['sudo'], executor_opts {'user': 'bob'}, start_event True"
	for _, c := range []struct {
		name   string
		args   []string
		jobs   int    // slices that are published
		fields string // of each slice
		asked  string // how the master is asked to run the batch
	}{
		{
			name:   "fields",
			args:   append([]string{"-b", "1", "*", "test.ping"}, fields...),
			jobs:   2,
			fields: wantFields,
		},
		{
			name:   "fields with --static",
			args:   append([]string{"--static", "*", "test.ping"}, fields...),
			jobs:   1,
			fields: wantFields,
		},
		{
			name:   "fields with --async",
			args:   append([]string{"-b", "1", "--async", "-t", "7", "--batch-wait", "1.5", "*", "test.ping"}, fields...),
			jobs:   1,
			fields: wantFields,
			asked:  "{'size': '1', 'wait': 1.5, 'failhard': False, 'timeout': 8.0, 'late_goes_on': True, 'ping': 7.0}",
		},
		{name: "subset", args: []string{"-b", "5", "--subset", "1", "*", "test.ping"}, jobs: 1},
		{name: "subset with --static", args: []string{"-s", "--subset", "1", "*", "test.ping"}, jobs: 1},
		{name: "subset with --async alone", args: []string{"--async", "--subset", "1", "*", "test.ping"}, jobs: 1},
		{name: "subset of nobody", args: []string{"-b", "1", "--subset", "1", "nobody", "test.ping"}},
		{name: "preview", args: []string{"-b", "1", "--preview-target", "*", "test.ping"}},
		{name: "preview with --static", args: []string{"--static", "--preview-target", "*", "test.ping"}},
		{name: "delimiter", args: []string{"-b", "1", "--delimiter", "|", "a", "test.ping"}, jobs: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := fakemaster.New(t, "a", "b")
			m.Minion = answers
			asUser(t, m)
			asked := ""
			m.Clear = func(load *value.Map) any {
				if load.Str("cmd") != "saltern_publish_batch" {
					return nil
				}
				asked = value.Repr(load.Map("batch"))
				return value.NewMap("enc", "clear", "load",
					value.NewMap("jid", "20261121000000000042", "minions", []any{"a"}, "down", []any{"b"}))
			}
			h := newHouse(t, m, "")
			h.run("salt", c.args...)

			var slicesOf []*value.Map
			for _, load := range m.Loads() {
				kwargs := load.Map("kwargs")
				isSlice := load.Str("jid") != "" || slices.Contains(c.args, "--async")
				switch {
				case load.Str("fun") != "test.ping":
				case isSlice:
					slicesOf = append(slicesOf, load)
				case slices.Contains(c.args, "--delimiter") && kwargs.Str("delimiter") != "|":
					t.Errorf("the ping has %s", value.Repr(kwargs))
				case jobFields(kwargs) != "":
					t.Errorf("the ping has %s", value.Repr(kwargs))
				}
			}
			if len(slicesOf) != c.jobs {
				t.Errorf("%d jobs, want %d; %s%s", len(slicesOf), c.jobs, h.out, h.errs)
			}
			for _, load := range slicesOf {
				if got := jobFields(load.Map("kwargs")); got != c.fields {
					t.Errorf("a slice has %s", got)
				}
				if slices.Contains(c.args, "--subset") && len(load.List("tgt")) != 1 {
					t.Errorf("a slice goes to %v", load.Value("tgt"))
				}
			}
			if asked != c.asked {
				t.Errorf("the master is asked to run a batch %s, want %s", asked, c.asked)
			}
			if told := strings.Contains(h.out, "Minion b did not respond. No job will be sent.\n"+
				"Executed batch command with job ID: JID"); told != (c.asked != "") {
				t.Errorf("output: %s%s", h.out, h.errs)
			}
		})
	}
}

// jobFields returns the fields of a job, as text, that say how minions run it.
func jobFields(kwargs *value.Map) string {
	var texts []string
	for _, name := range []string{"ret_config", "ret_kwargs", "metadata", "module_executors", "executor_opts", "start_event"} {
		if v, ok := kwargs.Get(name); ok {
			texts = append(texts, name+" "+value.Repr(v))
		}
	}
	return strings.Join(texts, ", ")
}

// TestSecondsOfBatchWait: no number of seconds becomes a time that nobody meant.
func TestSecondsOfBatchWait(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for n, want := range map[float64]time.Duration{
		0: 0, -1: 0, 1.5: 1500 * time.Millisecond, 1e300: year, math.Inf(1): year, math.Inf(-1): 0, math.NaN(): 0,
	} {
		if got := secondsOf(n); got != want {
			t.Errorf("%v: %s, want %s", n, got, want)
		}
	}
}
