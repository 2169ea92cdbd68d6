package explain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"saltern/internal/audit"
	"saltern/internal/control"
	"saltern/master/cache"
	"saltern/master/conf"
	"saltern/master/event"
	"saltern/master/internal/fileserver"
	"saltern/master/internal/fleet"
	"saltern/master/internal/launch"
	"saltern/master/internal/notify"
	"saltern/master/internal/pillar"
	"saltern/master/internal/presence"
	"saltern/master/internal/request"
	"saltern/master/internal/resources"
	"saltern/master/internal/syndics"
	"saltern/master/internal/unanswered"
	"saltern/master/jobs"
	"saltern/master/keys"
	"saltern/master/pattern"
)

// Times and bounds of an explanation.
const (
	maxAtOnce = 4
	// takes bounds an explanation. It is shorter than the time that a control socket allows.
	takes = 25 * time.Second
	// askFor is how long the minion may take to answer. A busy machine loads Salt's modules for seconds.
	askFor = 6 * time.Second
	// partFor bounds each other part.
	partFor = 10 * time.Second
	// maxArgument bounds each argument, in bytes.
	maxArgument = 255
)

// Nodes knows where minions are: [appliance.Appliance].
type Nodes interface {
	Minion(ctx context.Context, id string) (control.MinionPlaces, error)
	Records(ctx context.Context, q audit.Query) (audit.List, error)
}

// Problems lists the persistent faults of the master: [health.Problems].
type Problems interface{ List() []control.Problem }

// Refusals knows the requests that were refused: [request.Server].
type Refusals interface {
	RefusedFrom(from netip.Addr) (last request.Refusal, ok bool)
}

// Config has the parts of the master that an explanation is about.
type Config struct {
	Node       string
	Options    *conf.Master
	Nodes      Nodes // of a master without a supervisor its methods fail
	Keys       *keys.Store
	Presence   *presence.View
	SignIns    *SignIns
	Refusals   Refusals
	Unanswered *unanswered.Tracker
	Syndics    *syndics.Registry // may be nil: there are none
	Jobs       jobs.Cache
	Bus        *event.Bus
	Launch     *launch.Launcher
	Targets    *launch.Targets
	Resources  *resources.Registry
	Cache      *cache.Store
	Fleet      *fleet.Fleet // may be nil: there is no history
	Compiler   *pillar.Compiler
	Pillars    *pillar.Service
	Files      *fileserver.Server
	Notify     *notify.Service // may be nil: there are no rules
	Problems   Problems
	Now        func() time.Time
	Log        *slog.Logger
}

// Service explains minions. It is safe for concurrent use.
type Service struct {
	cfg  Config
	busy chan struct{} // holds a token for each explanation
	// reading holds a token while the audit record is read.
	reading chan struct{}
}

// New returns a Service.
func New(cfg Config) *Service {
	return &Service{cfg: cfg, busy: make(chan struct{}, maxAtOnce), reading: make(chan struct{}, 1)}
}

// ErrArgument is wrapped by errors about wrong arguments.
var ErrArgument = errors.New("wrong argument")

func checkQuestion(q control.ExplainQuestion) error {
	for name, text := range map[string]string{
		"minion": q.Minion, "key": q.Key, "user": q.User, "fun": q.Function,
	} {
		if len(text) > maxArgument {
			return fmt.Errorf("%w: %s is longer than %d bytes", ErrArgument, name, maxArgument)
		}
	}
	switch {
	case q.Minion == "":
		return fmt.Errorf("%w: minion is missing: the id of a minion", ErrArgument)
	case (q.User == "") != (q.Function == ""):
		return fmt.Errorf("%w: user and fun are given together", ErrArgument)
	}
	return nil
}

// Explain explains a minion. The caller has checked that the user may know all that an explanation has.
func (s *Service) Explain(ctx context.Context, q control.ExplainQuestion) (control.Explanation, error) {
	if err := checkQuestion(q); err != nil {
		return control.Explanation{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, takes)
	defer cancel()
	leave, err := s.enter(ctx)
	if err != nil {
		return control.Explanation{}, err
	}
	defer leave()

	f := &facts{id: q.Minion, now: s.cfg.Now(), serverTTL: s.cfg.Options.RequestServerTTL}
	out := control.Explanation{Minion: q.Minion, Node: s.cfg.Node, Time: f.now.UTC()}

	// What waits for others runs at once. Each part writes what only it knows.
	var parts sync.WaitGroup
	s.lookAtKey(f)
	parts.Go(func() { s.lookAtPlaces(ctx, f) })
	parts.Go(func() { s.askMinion(ctx, f, q.Silent) })
	parts.Go(func() { out.Key = s.keyOf(ctx, f) })
	parts.Go(func() { s.explainFiles(ctx, f, q.Key, &out) })
	parts.Wait()

	f.addRefused()
	s.lookAtMaster(ctx, f)
	out.Causes = causesOf(f)
	out.Answers = f.answer.answers > 0 && f.answer.text == ""
	out.Connection = f.connection()
	out.Running = f.answer.running
	out.Unanswered = f.unanswered
	out.UnansweredSince = f.unansweredSince
	s.explainRuns(f.id, &out)
	if at, ok := s.cfg.Cache.Changed(cache.Grains, f.id); ok {
		out.GrainsChanged = at.UTC()
	}
	out.Groups = s.groupsOf(f.id)
	if q.User != "" {
		out.Rights = s.rightsOf(q)
	}
	for _, one := range s.cfg.Notify.SilencesOf(f.id) {
		out.Silences = append(out.Silences, fmt.Sprintf("%s, until %s, by %s", one.Name, one.Until.UTC().Format(time.RFC3339), one.By))
	}
	return out, ctx.Err()
}

// errBusy means that maxAtOnce explanations were being made for all the time that a caller can wait.
var errBusy = errors.New("too many explanations are asked for at once: try again in a minute")

// enter waits until this explanation may begin, at most so long that it has time for its slowest parts. The
// caller must call leave at its end.
func (s *Service) enter(ctx context.Context) (leave func(), err error) {
	late := time.NewTimer(takes - partFor - askFor)
	defer late.Stop()
	select {
	case s.busy <- struct{}{}:
		return func() { <-s.busy }, nil
	case <-late.C:
		return nil, errBusy
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for other explanations: %w", ctx.Err())
	}
}

// keyOf describes the keys of a minion. It reads the audit record for who decided about them.
func (s *Service) keyOf(ctx context.Context, f *facts) control.ExplainedKey {
	out := control.ExplainedKey{
		State:       f.keyState(),
		Fingerprint: s.fingerprint(f.key),
		Near:        f.near,
	}
	if f.hasDenied {
		out.Denied = s.fingerprint(f.denied)
	}

	if f.hasKey || f.hasDenied {
		s.addDecision(ctx, f.id, &out)
	}
	return out
}

// addDecision adds who last decided about a key, by the audit records of all nodes, or of this node if the
// others cannot be asked. One call reads at a time, because there may be 128 MiB of records; a call that waits
// for too long adds nothing.
func (s *Service) addDecision(ctx context.Context, id string, out *control.ExplainedKey) {
	ctx, cancel := context.WithTimeout(ctx, partFor)
	defer cancel()
	select {
	case s.reading <- struct{}{}:
		defer func() { <-s.reading }()
	case <-ctx.Done():
		return
	}

	q := audit.Query{Action: "key.*", Last: audit.MaxRecords}
	asking, stop := context.WithTimeout(ctx, partFor/2)
	defer stop()
	if list, err := s.cfg.Nodes.Records(asking, q); err == nil {
		addLatest(list.Records, id, out)
		return
	}
	from := s.cfg.Options.Audit("salt-master", nil)
	if page, err := audit.Read(ctx, from.Node, q, from.Dir); err == nil {
		addLatest(page.Records, id, out)
	}
}

// addLatest adds the latest record of a decision that led to the state of the key. It adds nothing if a later
// record may be about the key, too: a long list of ids is cut.
func addLatest(records []audit.Record, id string, out *control.ExplainedKey) {
	for i := range slices.Backward(records) {
		r := &records[i]
		if decisionOf(r) != out.State {
			continue
		}
		ids, whole := objectsOf(r)
		if slices.Contains(ids, id) {
			out.Since = r.Time.UTC()
			out.By = r.Actor.Who()
			out.Action = r.Action
			return
		}
		if !whole && mayName(r.Object, id) {
			return
		}
	}
}

// decisionOf returns the state of a key after the action of a record, or "" if the action changed no state.
func decisionOf(r *audit.Record) string {
	switch {
	case r.Action == "key.accept" && r.Result == audit.OK, r.Action == "key.autosign" && r.Result == audit.OK:
		return keys.Accepted.String()
	case r.Action == "key.reject" && r.Result == audit.OK, r.Action == "key.autosign" && r.Result == audit.Refused:
		return keys.Rejected.String()
	}
	return ""
}

// mayName reports whether the object of a record, of which only some ids are known, may stand for an id.
func mayName(object, id string) bool {
	isGlob := !strings.ContainsAny(object, ",{[")
	return !isGlob || pattern.Glob(object, id)
}

// objectsOf returns the ids that a record names. whole is false if it lacks some. A record of a wheel function
// has a glob as its object, and in its detail the ids that the glob selected.
func objectsOf(r *audit.Record) (ids []string, whole bool) {
	ids, whole = audit.ParseNames(r.Object)
	if r.Function == "" {
		return ids, whole
	}
	selected, whole := audit.ParseNames(r.Detail)
	return append(ids, selected...), whole
}

func (s *Service) fingerprint(e keys.Entry) string {
	if e.PEM == "" {
		return ""
	}
	text, err := keys.Fingerprint(e.PEM, s.cfg.Options.HashType)
	if err != nil {
		return ""
	}
	return text
}

// explainRuns adds the last answer and the last run of states.
func (s *Service) explainRuns(id string, out *control.Explanation) {
	last, ok := s.cfg.Fleet.Last(id)
	if !ok {
		return
	}
	out.Answer = runOf(&last.Answer)
	if last.Run.JID == "" {
		return
	}

	out.Run = runOf(&last.Run)
	for i := range last.Summary.FailedStates {
		state := &last.Summary.FailedStates[i]
		out.Run.Failed = append(out.Run.Failed, state.Function+" "+state.ID) // its comment may quote the pillar
	}
	for _, state := range last.Summary.Drifted() {
		out.Run.Drifted = append(out.Run.Drifted, state.Function+" "+state.ID)
	}
}

func runOf(a *fleet.Answer) *control.ExplainedRun {
	return &control.ExplainedRun{
		JID:      a.JID,
		Function: a.Function,
		User:     a.User,
		Time:     a.Time.UTC(),
		Result:   a.Result.String(),
	}
}

// groupsOf returns the nodegroups and saved targets that hold a minion.
func (s *Service) groupsOf(id string) (names []string) {
	for _, name := range s.cfg.Targets.Groups().Keys() {
		if found, err := s.cfg.Targets.Among(nil, name, "nodegroup", id); err == nil && len(found) > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
