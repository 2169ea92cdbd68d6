//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/test/lab"
)

// syndicLab is a master of Salt's with one minion, whose syndic obeys two masters of ours.
type syndicLab struct {
	tops  []*lab.Site
	lower *lab.Site
}

// TestSyndics: jobs of both masters on top reach the minion below, their returns and the loads of jobs
// that are begun below reach the top. A master on top that restarts gets the return of a job that ran
// meanwhile.
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

	l.start(t)
	l.exchange(t)
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
