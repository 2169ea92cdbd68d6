//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/test/lab"
)

// syndicLab is a master of Salt's with two minions, whose syndic obeys two masters of ours, which have a minion
// of their own.
type syndicLab struct {
	tops  []*lab.Site
	lower *lab.Site
}

// TestSyndics: jobs of both masters on top reach the minion below, their returns and the loads of jobs
// that are begun below reach the top. A master on top that restarts gets the return of a job that ran
// meanwhile. Saved jobs reach the minions below as the one on top, and nobody counts the syndic.
//
// The syndic is that of 3007.15, beside a master and a minion of 3008.3: that of 3008.3 hangs after its
// first request, below any master (salt/utils/asynchronous.py SyncWrapper cancels the task that sends).
func TestSyndics(t *testing.T) {
	t.Parallel()
	l := &syndicLab{lower: lab.NewSites(t, 1)[0]}
	l.tops = topology{}.sites(t, "master", map[string]any{"order_masters": true, "auto_accept": true})
	for _, top := range l.tops {
		top.Options["master_id"] = top.Addr // by which the syndic returns a job to its master
		if err := top.Stop(time.Minute); err != nil {
			t.Fatal(err)
		}
		top.Launch(t)
	}
	l.lower.Python = true
	l.lower.Options = map[string]any{
		"auto_accept":     true,
		"syndic_master":   []string{l.tops[0].Addr, l.tops[1].Addr},
		"syndic_log_file": l.lower.Dir + "/syndic.log",
		"syndic_pidfile":  l.lower.Dir + "/sock/syndic.pid",
	}
	l.lower.Launch(t)
	lab.WriteTree(t, l.lower.Dir, map[string]string{"etc/minion": strings.Join([]string{
		"id: syndic", "user: root", "root_dir: /", "conf_file: " + l.lower.Dir + "/etc/minion",
		"pki_dir: " + l.lower.Dir + "/syndic/pki", "cachedir: " + l.lower.Dir + "/syndic/cache",
		"sock_dir: " + l.lower.Dir + "/syndic/sock", "log_file: " + l.lower.Dir + "/syndic.log",
		"enable_fqdns_grains: false", "enable_gpu_grains: false", "return_retry_timer: 2", "return_retry_timer_max: 4",
	}, "\n")})
	lab.SiteMinion(t, "below", lab.Newest, []*lab.Site{l.lower}, nil)
	lab.SiteMinion(t, "below.two", lab.Newest, []*lab.Site{l.lower}, nil)
	lab.SiteMinion(t, "above", lab.Newest, l.tops, nil)

	l.start(t)
	l.exchange(t)
	l.runSaved(t)
	l.restartTop(t)
}

// start starts the syndic.
func (l *syndicLab) start(t *testing.T) {
	t.Helper()
	lab.Start(t, "salt-syndic", filepath.Join(l.lower.Dir, "syndic.out"),
		filepath.Join(lab.Venv(t, "3007.15"), "salt-syndic"), "-c", filepath.Join(l.lower.Dir, "etc"), "-l", "info")
}

// exchange has a job begun at each master, and waits for its load and its return on top.
func (l *syndicLab) exchange(t *testing.T) {
	t.Helper()
	for i, top := range l.tops {
		word := fmt.Sprintf("from-top-%d", i)
		lab.Eventually(t, 2*time.Minute, "a job of "+top.Addr+" reaches the minion below", func() error {
			got, err := top.JSON(t, "-t", "20", "below", "test.echo", word)
			if err == nil && got["below"] != word {
				err = fmt.Errorf("returns: %v", got)
			}
			return err
		})
	}

	const word = "from-below"
	got, err := l.lower.JSON(t, "below", "test.echo", word)
	if err != nil || got["below"] != word {
		t.Fatalf("a job of the lower master gave %v, %v", got, err)
	}
	lab.Eventually(t, time.Minute, "a job that was begun below is on top, with its load", func() error {
		err := fmt.Errorf("it is at neither of the masters")
		for _, top := range l.tops { // a syndic tells one of its masters, by chance
			if err = hasJobOf(t, top, word); err == nil {
				return nil
			}
		}
		return err
	})
}

// runSaved runs saved jobs: after a test run, in a batch, and with both on minions below alone.
func (l *syndicLab) runSaved(t *testing.T) {
	t.Helper()
	top := l.tops[0]
	top.Ping(t, 2*time.Minute, "above", "below", "below.two")
	run := func(into any, args ...string) {
		t.Helper()
		r := top.SaltRun(t, append(args, "--out=json")...)
		if err := json.Unmarshal([]byte(r.Out), into); r.Code != 0 || err != nil {
			t.Fatalf("%v: %v: %s%s", args, err, r.Out, r.Err)
		}
	}

	job := []string{"function=state.single", "args=['test.succeed_without_changes']", "kwargs={name: x}", "stop_above=0", "timeout=60"}
	all := []string{"above", "below", "below.two"}
	for _, tt := range []struct {
		name, target, how string
		want              []string
	}{
		{"tested", "*", "test_first=True", all},
		{"batch", "*", "batch=2", all},
		{"low", "below*", "test_first=True batch=1", all[1:]},
	} {
		var ignored any
		set := []string{"saved.set_job", tt.name, "target_type=glob", "target=" + tt.target}
		run(&ignored, slices.Concat(set, job, strings.Fields(tt.how))...)

		var result struct {
			JID     string
			Minions []string
		}
		run(&result, "saved.run", tt.name)
		slices.Sort(result.Minions)
		if !slices.Equal(result.Minions, tt.want) {
			t.Errorf("%s: the result names %v", tt.name, result.Minions)
		}
		lab.Eventually(t, time.Minute, tt.name+" has run on "+strings.Join(tt.want, ", "), func() error {
			var list struct {
				Jobs []struct{ Minions, OK, Absent int }
			}
			run(&list, "fleet.jobs", "jid="+result.JID)
			if got := list.Jobs[0]; got.Minions != len(tt.want) || got.OK != len(tt.want) || got.Absent != 0 {
				return fmt.Errorf("%+v", got)
			}
			return nil
		})
	}

	var status struct{ Up, Down []string }
	run(&status, "manage.status")
	if !slices.Equal(status.Up, all) || len(status.Down) > 0 {
		t.Errorf("manage.status: %+v", status)
	}
	for minion, cause := range map[string]string{"below": "below a syndic", "syndic": "passes jobs on"} {
		if r := top.SaltRun(t, "fleet.explain", minion); !strings.Contains(r.Out, cause) {
			t.Errorf("fleet.explain %s: %s%s", minion, r.Out, r.Err)
		}
	}
}

// restartTop restarts a master on top while a job of it runs below.
func (l *syndicLab) restartTop(t *testing.T) {
	t.Helper()
	top := l.tops[0]
	r := top.Salt(t, "--async", "below", "cmd.run", "sleep 8; echo slept")
	_, jid, _ := strings.Cut(strings.TrimSpace(r.Out), "job ID: ")
	lab.Eventually(t, time.Minute, "the minion below runs the job", func() error {
		running, err := l.lower.JSON(t, "below", "saltutil.find_job", jid)
		if err == nil && !strings.Contains(fmt.Sprint(running), jid) {
			err = fmt.Errorf("%s: %v", r.Out, running)
		}
		return err
	})

	if err := top.Stop(time.Minute); err != nil {
		t.Fatal(err)
	}
	top.Launch(t)
	lab.Eventually(t, 2*time.Minute, "the return of a job that ran over the restart", func() error {
		r := top.SaltRun(t, "jobs.lookup_jid", jid, "--out=json")
		if !strings.Contains(r.Out, "slept") {
			return fmt.Errorf("jobs.lookup_jid %s: %s%s", jid, r.Out, r.Err)
		}
		return nil
	})
}

// hasJobOf returns an error unless the master lists a job of the lower master's user with an argument,
// a target and the return of the minion.
func hasJobOf(t *testing.T, top *lab.Site, word string) error {
	t.Helper()
	r := top.SaltRun(t, "jobs.list_jobs", "search_function=test.echo", "--out=json")
	var listed map[string]struct {
		Arguments []string
		Target    any
	}
	if err := json.Unmarshal([]byte(r.Out), &listed); err != nil {
		return fmt.Errorf("jobs.list_jobs: %w: %s", err, r.Err)
	}

	for jid, job := range listed {
		if len(job.Arguments) != 1 || job.Arguments[0] != word || !strings.Contains(fmt.Sprint(job.Target), "below") {
			continue
		}
		if r := top.SaltRun(t, "jobs.lookup_jid", jid, "--out=json"); !strings.Contains(r.Out, word) {
			return fmt.Errorf("job %s has no return: %s", jid, r.Out)
		}
		return nil
	}
	return fmt.Errorf("no job of %s among %v", word, listed)
}
