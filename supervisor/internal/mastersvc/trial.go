package mastersvc

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"saltern/internal/pause"
	"saltern/internal/printable"
	"saltern/supervisor/internal/child"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/layout"
	"saltern/supervisor/options"
	"saltern/supervisor/settings"
)

// Trial decides with which of the administrator's options this node's master runs. Options with
// which the master has not served yet are on trial: if the master ends or does not serve in time,
// Trial refuses these options and restarts the master with the options with which it last served.
// Refused options stay refused, even after a restart of the supervisor, until they change or an
// administrator requests them again.
type Trial struct {
	env     child.Env
	account layout.Account // account of the master
	service masterService
	// counted reports whether the load balancer counts this master as up.
	counted func(context.Context) bool

	stir chan struct{} // capacity 1; wakes Run, because there may be something to decide

	mu      sync.Mutex
	refused layout.Refusal // refused options; also saved on disk
	options layout.Options // options with which the master was configured; without Mark: not known
	began   time.Time      // when the start with options began
	since   time.Time      // since when the master has served without a break; zero: it does not serve
	waits   bool           // the master has not served with the options yet
	trial   bool           // there are other options to go back to
	asked   string         // mark of the options whose trial was requested; empty: none
	end     time.Time      // end of the requested trial
	limit   time.Duration  // length of the requested trial
}

const (
	trialTakes = 3 * time.Minute // time limit of a trial that no roll has requested
	// trialHolds is how long a master must serve before its options count as good.
	trialHolds = 2 * time.Second
)

// masterService is the service that runs the master: [service.Named].
type masterService interface {
	Info() service.Info
	Restart() error
}

func NewTrial(
	env child.Env,
	account layout.Account,
	service masterService,
	counted func(context.Context) bool,
) *Trial {
	r, err := layout.Refused(env.Settings)
	if err != nil { // continue as if no options were refused
		env.Log.Warn("it is not known which options are refused", "error", err)
	}
	return &Trial{
		env:     env,
		account: account,
		service: service,
		counted: counted,
		stir:    make(chan struct{}, 1),
		refused: r,
	}
}

// freshSettings returns this node's settings with the master's options that appliance.yaml has now.
// If the file has a fault, it returns the present settings.
func (t *Trial) freshSettings() *settings.Settings {
	s := *t.env.Settings
	if now, err := settings.Load(t.env.ConfigPath, s.Node); err == nil {
		s.Master.Options, s.AllowInsecure = now.Master.Options, now.AllowInsecure
	}
	return &s
}

// withOptions returns s with o in place of the master's options in appliance.yaml.
func (t *Trial) withOptions(s *settings.Settings, o layout.Options) *settings.Settings {
	out := *s
	out.Master.Options, out.AllowInsecure = o.Own, t.freshSettings().AllowInsecure
	return &out
}

// current returns the present options, and why they are refused, or "" if they are not.
func (t *Trial) current() (o layout.Options, refused string) {
	s := t.freshSettings()
	o, err := layout.UserOptions(s, s.Master.Options)
	if err != nil { // the master's own check names the fault better
		o.Mark = ""
		return o, ""
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.refused.Mark == o.Mark {
		return o, t.refused.Why
	}
	return o, ""
}

// Mark returns the mark of the options with which the master was last configured.
func (t *Trial) Mark() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.options.Mark
}

// Restart restarts the master. It implements [member.MasterService].
func (t *Trial) Restart() error { return t.service.Restart() }

// restart restarts the master. It ignores the error for a missing service: a node that tries
// options has the master service.
func (t *Trial) restart() { _ = t.service.Restart() }

// OldKey reports whether the master was started with another key of the cluster than its
// storage has now.
func (t *Trial) OldKey() bool {
	o, _ := t.current()
	t.mu.Lock()
	defer t.mu.Unlock()
	return o.Key != "" && t.options.Key != "" && o.Key != t.options.Key
}

// setRefused stores which options are refused, in memory and on disk. The zero value means that
// none are.
func (t *Trial) setRefused(r layout.Refusal) {
	t.mu.Lock()
	t.refused = r
	t.mu.Unlock()
	if err := layout.Refuse(t.env.Settings, r); err != nil { // without the file the refusal ends with this process
		t.env.Log.Error("which options of the master are refused is not kept", "error", err)
	}
}

// noteStart records that the master is about to start with options. trial reports whether there are
// other options to go back to.
func (t *Trial) noteStart(o layout.Options, trial bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.options, t.trial = o, trial
	t.began = t.env.Now()
	t.since = time.Time{}
	t.waits = o.Mark != ""
	if t.asked != o.Mark {
		t.asked = ""
	}
	t.decide()
}

// underway returns the mark of the options with which the master was configured, and whether any
// trial is under way.
func (t *Trial) underway() (mark string, trying bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.options.Mark, t.asked != "" || t.waits && t.trial
}

// request records that a rolling change requests a trial of the options whose version is mark. The
// trial ends after limit. again reports whether the change has requested the same trial before.
// While other options are on trial, request returns an error.
func (t *Trial) request(mark string, limit time.Duration) (again bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.asked != "" && t.asked != mark || t.asked == "" && t.waits && t.trial {
		return false, options.ErrTrying
	}

	again = t.asked == mark
	t.asked = mark
	t.limit = limit
	t.end = t.env.Now().Add(limit)
	t.decide()
	return again, nil
}

// withdraw undoes [Trial.request].
func (t *Trial) withdraw() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked = ""
}

// abandon ends a running trial, whatever its outcome.
func (t *Trial) abandon() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked, t.waits = "", false
}

// decide wakes Run, which decides about the trial.
func (t *Trial) decide() {
	select {
	case t.stir <- struct{}{}:
	default:
	}
}

// verdict is the outcome of a trial.
type verdict int

const (
	goOn verdict = iota
	isGood
	isBad
)

// judge decides about the trial, given whether the master serves. message is the state of the
// master service; why is set only with the verdict isBad.
func (t *Trial) judge(now time.Time, serves bool, message string) (v verdict, why string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !serves {
		t.since = time.Time{}
	} else if t.since.IsZero() {
		t.since = now
	}

	asked := t.asked != "" && t.asked == t.options.Mark
	switch {
	case t.waits && !t.since.IsZero() && now.Sub(t.since) >= trialHolds:
		t.waits = false
		if asked {
			t.asked = ""
		}
		return isGood, ""
	case t.asked != "" && now.After(t.end): // even if the trial never began
		return isBad, fmt.Sprintf("salt-master did not serve within %s: %s", t.limit, message)
	case t.waits && t.trial && !asked && now.Sub(t.began) > trialTakes:
		return isBad, fmt.Sprintf("salt-master did not serve within %s: %s", trialTakes, message)
	}

	return goOn, ""
}

// Run decides about trials until ctx ends.
func (t *Trial) Run(ctx context.Context) {
	for {
		t.mu.Lock()
		idle := !t.waits && t.asked == ""
		t.mu.Unlock()

		if idle {
			select {
			case <-t.stir:
			case <-ctx.Done():
				return
			}
		}

		if pause.For(ctx, 250*time.Millisecond) != nil {
			return
		}

		info := t.service.Info()
		switch v, why := t.judge(t.env.Now(), t.serves(ctx, info), info.Message); v {
		case isGood:
			t.keepGood()
		case isBad:
			t.refuseOptions(why)
		}
	}
}

// serves reports whether the master answers and the load balancer sends minions to it.
func (t *Trial) serves(ctx context.Context, info service.Info) bool {
	if info.State != service.Running {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return t.counted(ctx)
}

// keepGood saves the options of a master that serves, so that a later start with broken options can
// use them instead.
func (t *Trial) keepGood() {
	t.mu.Lock()
	o := t.options
	t.mu.Unlock()

	good, err := layout.GoodOptions(t.env.Settings)
	if err == nil && good.Mark == o.Mark && good.Dir == o.Dir {
		return // the master uses the last good options again
	}

	if now, refused := t.current(); now.Mark != o.Mark || refused != "" {
		return // the options have changed since the start: the next start tries the new ones
	}

	// a full disk must not keep the master from serving
	if err := layout.KeepGood(t.env.Settings, o, t.account); err != nil {
		t.env.Log.Warn("the master's options of now are not kept for a start with broken ones", "error", err)
	}

	t.setRefused(layout.Refusal{})
}

// refuseOptions refuses the present options and restarts the master, which then uses its last good
// options.
func (t *Trial) refuseOptions(why string) {
	t.mu.Lock()
	mark := cmp.Or(t.asked, t.options.Mark)
	t.asked, t.waits = "", false
	t.mu.Unlock()
	t.env.Log.Error("salt-master does not serve with its new options; it goes back to its last good ones", "reason", why)
	t.setRefused(layout.Refusal{Mark: mark, Why: printable.Brief(why, 500)})
	t.restart()
}

// masterEnded is called when the master ended by itself. last holds the last lines of its output.
func (t *Trial) masterEnded(err error, last []string) {
	t.mu.Lock()
	bad := t.waits && t.trial
	t.mu.Unlock()

	if !bad {
		return
	}

	why := "salt-master ended before it served"
	if err != nil {
		why += " (" + err.Error() + ")"
	}

	if len(last) > 0 {
		why += ": " + last[len(last)-1]
	}

	t.refuseOptions(why)
}

// ForgetRefusal removes the refusal, so that the next start tries the refused options again. It is
// called when an administrator restarts the master by hand.
func (t *Trial) ForgetRefusal() { t.setRefused(layout.Refusal{}) }
