package notify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"saltern/internal/control"
	"saltern/master/event"
	"saltern/master/history/summary"
	"saltern/master/internal/notify/alert"
	"saltern/master/internal/notify/rules"
	"saltern/master/internal/notify/send"
	"saltern/master/value"
)

// Bounds of what waits for Run.
const (
	eventDepth    = 16_384
	eventBatch    = 256 // events that share one sync of the disk
	incomingDepth = 1024
	incomingBytes = 32 << 20
)

// Cluster is what a Service needs of the cluster.
type Cluster interface {
	// Own reports whether this master is the one that sends. term is greater for each new owner.
	Own() (term uint64, ok bool)
	// AlivePeers returns the ids of the other masters that are alive.
	AlivePeers() []string
	// SendData sends bytes to a peer, or to all if peer is "". It reports whether all queues had room.
	SendData(peer string, b []byte) bool
}

// Config configures a Service.
type Config struct {
	Rules   rules.Rules
	Dir     string // folder of this node's own disk that no other process uses
	Node    string // name of this master in messages
	Bus     *event.Bus
	Cluster Cluster
	Near    Surroundings
	// Problem reports a persistent fault. If err is nil, the fault has ended.
	Problem func(fault control.Fault, err error)
	Now     func() time.Time
	Log     *slog.Logger
}

// Service sends notifications. Its methods are safe for concurrent use. A nil Service has no rules.
type Service struct {
	cfg      Config
	outbox   *Outbox
	silences *silences
	watch    *watch
	targets  *targets
	senders  []*sender
	failures failures
	owner    ownership
	sub      *event.Subscription

	incoming chan incoming
	bytes    atomic.Int64 // of incoming

	unheard  atomic.Uint64 // events and messages of peers that were lost because too many came at once
	bad      atomic.Uint64 // messages of peers that cannot be read
	untold   atomic.Uint64 // messages to peers that found no room
	diskMu   sync.Mutex
	diskFail bool // the last alert or mark could not be written
}

// incoming is a message of a peer. Without a message it is an order to exchange what waits with the
// peer, or with all if peer is "".
type incoming struct {
	peer string
	b    []byte
}

// New returns a Service that collects events from now on, or nil without rules. The caller must call
// Run. Faults of the disk are logged; notifications then do not survive a restart.
func New(cfg Config) *Service {
	if len(cfg.Rules) == 0 {
		return nil
	}

	s := &Service{cfg: cfg, incoming: make(chan incoming, incomingDepth)}
	s.targets = &targets{near: cfg.Near, log: cfg.Log, known: map[string]selection{}}
	s.failures = failures{
		report: func(err error) { cfg.Problem(control.NotifyFault, err) },
		errs:   map[string]error{},
	}
	var ids []string
	for i := range cfg.Rules {
		r := &cfg.Rules[i]
		for j := range r.To {
			ids = append(ids, r.To[j].ID)
			s.senders = append(s.senders, newSender(s, r, &r.To[j], send.New(&r.To[j])))
		}
	}

	var errs [4]error
	known, err := knownSince(s.knownPath(), ids, cfg.Now())
	errs[3] = err
	s.outbox, errs[0] = OpenOutbox(filepath.Join(cfg.Dir, "outbox"), known, s.route)
	s.silences, errs[1] = openSilences(filepath.Join(cfg.Dir, "silences.json"))
	s.watch, errs[2] = openWatch(cfg.Rules, cfg.Near, filepath.Join(cfg.Dir, "told.json"), cfg.Now(), cfg.Log)
	if err := errors.Join(errs[:]...); err != nil {
		cfg.Log.Error("notifications cannot use the disk", "path", cfg.Dir, "error", err)
		cfg.Problem(control.NotifyDiskFault, err)
	}

	s.sub = cfg.Bus.Subscribe("notify", eventDepth, event.IsStartOrReturn)
	return s
}

// route returns the ids of the destinations of an alert.
func (s *Service) route(a *alert.Alert) (ids []string) {
	subject := a.Subject()
	for i := range s.cfg.Rules {
		if r := &s.cfg.Rules[i]; r.Matches(subject) {
			for j := range r.To {
				ids = append(ids, r.To[j].ID)
			}
		}
	}
	return ids
}

// Run sends notifications until ctx ends. What was not sent by then stays in the outbox.
func (s *Service) Run(ctx context.Context) {
	var parts sync.WaitGroup
	for _, one := range s.senders {
		parts.Go(func() { one.run(ctx) })
	}
	parts.Go(func() { s.runLooks(ctx) })
	parts.Go(func() { s.runIncoming(ctx) })

	stop := context.AfterFunc(ctx, s.sub.Close)
	defer stop()
	for e := range s.sub.C { // after Close it yields what waited
		batch := []event.Event{e}
		for len(batch) < eventBatch && len(s.sub.C) > 0 {
			if more, ok := <-s.sub.C; ok {
				batch = append(batch, more)
			}
		}
		s.takeEvents(batch)
	}

	parts.Wait()
	if err := errors.Join(s.watch.save(), s.outbox.Close()); err != nil {
		s.cfg.Log.Warn("the outbox of notifications cannot be closed", "error", err)
	}
}

// takeEvents records the alerts of events.
func (s *Service) takeEvents(batch []event.Event) {
	var own, ofPeers []alert.Alert
	for _, e := range batch {
		s.unheard.Add(e.Lost)
		if event.Returner(e.Tag) == "" {
			s.watch.jobBegan(e.Data.Str("jid"), minionsOf(e.Data), s.cfg.Now())
			continue
		}

		s.watch.answered(event.Returner(e.Tag), s.cfg.Now())
		a, failed := s.ofReturn(e.Data)
		switch {
		case !failed || s.outbox.Has(a.ID):
		case e.Origin == event.Peer:
			ofPeers = append(ofPeers, a)
		default:
			own = append(own, a)
		}
	}

	s.record(false, ofPeers...)
	s.record(true, own...)
}

// minionsOf returns the minions of an event that starts a job. An event of this master has a
// []string there; an event of a peer has a decoded []any.
func minionsOf(data *value.Map) []string {
	if list, ok := data.Value("minions").([]string); ok {
		return list
	}
	return data.Texts("minions")
}

// Returned records the alert of a return before the minion gets its answer, so that a crash after
// the answer loses no message about a failed run.
func (s *Service) Returned(load *value.Map) {
	if s == nil {
		return
	}
	if a, failed := s.ofReturn(load); failed {
		s.record(true, a)
	}
}

// ofReturn returns the alert of a return that failed, if a rule is about it. load is the event of the
// return, or what the minion sent. A return that no master keeps has no alert.
func (s *Service) ofReturn(load *value.Map) (a alert.Alert, failed bool) {
	if load.Bool(event.RefusedField) {
		return alert.Alert{}, false
	}
	minion := load.Str("id")
	subject := rules.Subject{
		Kind:     rules.Failed,
		Minion:   minion,
		Function: summary.FunctionOf(load),
	}
	if !s.cfg.Rules.Matches(subject) {
		return alert.Alert{}, false
	}

	return alert.OfRun(alert.Run{
		Minion:  minion,
		JID:     load.Str("jid"),
		User:    load.Str("user"),
		Time:    s.cfg.Now(),
		Summary: summary.OfReturn(load),
	})
}

// record adds alerts to the outbox, and tells the other masters of those that are new if tell is set.
func (s *Service) record(tell bool, alerts ...alert.Alert) {
	if len(alerts) == 0 {
		return
	}

	for i := range alerts {
		if alerts[i].Node == "" {
			alerts[i].Node = s.cfg.Node
		}
	}
	fresh, err := s.outbox.Record(alerts...)
	s.noteDisk(err)
	for i := range fresh {
		s.watch.note(&fresh[i], s.cfg.Now())
	}

	if tell {
		for part := range slices.Chunk(fresh, maxListed) {
			s.tell("", &peerMessage{Alerts: part})
		}
	}
	if len(fresh) > 0 {
		s.wakeSenders()
	}
}

// settle records marks, and sends new ones to the other masters.
func (s *Service) settle(marks ...Mark) {
	if len(marks) == 0 {
		return
	}
	fresh, err := s.outbox.Settle(marks...)
	s.noteDisk(err)
	for part := range slices.Chunk(fresh, maxMarks) {
		s.tell("", &peerMessage{Marks: part})
	}
}

// noteDisk reports the first of several faults of the disk in a row, and their end.
func (s *Service) noteDisk(err error) {
	s.diskMu.Lock()
	changed := s.diskFail != (err != nil)
	s.diskFail = err != nil
	s.diskMu.Unlock()
	if err != nil && changed {
		s.cfg.Log.Error("notifications are in memory only, and may be lost or sent twice after a restart", "error", err)
	}
	if changed {
		s.cfg.Problem(control.NotifyDiskFault, err)
	}
}

func (s *Service) wakeSenders() {
	for _, one := range s.senders {
		one.wake()
	}
}

// tell sends a message to a peer, or to all. It reports whether the message found room on its way to
// each of them.
func (s *Service) tell(peer string, m *peerMessage) bool {
	b, err := m.pack()
	told := err == nil && s.cfg.Cluster.SendData(peer, b)
	if !told {
		s.untold.Add(1)
	}
	return told
}

// runLooks looks for conditions that last, and forgets what is too old, until ctx ends.
func (s *Service) runLooks(ctx context.Context) {
	look := time.NewTicker(rules.LookEvery)
	defer look.Stop()
	for {
		owner, _ := s.maySend()
		s.record(true, s.watch.look(ctx, owner, s.cfg.Cluster.AlivePeers(), s.cfg.Now())...)
		s.tellSightings()

		if err := errors.Join(s.watch.save(), s.outbox.Prune(s.cfg.Now())); err != nil {
			s.cfg.Log.Warn("old notifications stay on the disk", "error", err)
		}

		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

// tellSightings tells the other masters which minions are connected here. It does so without a rule about that,
// too: the others may have got one already.
func (s *Service) tellSightings() {
	for _, m := range report(s.cfg.Near.Accepted(), s.cfg.Near.Presence()) {
		s.tell("", &m)
	}
}

// Try sends a test message to each destination of a rule at once, from this master, and returns what
// became of it by the name of the destination.
func (s *Service) Try(ctx context.Context, rule, user string) (results map[string]error, err error) {
	i := slices.IndexFunc(s.cfg.Rules, func(r rules.Rule) bool { return r.Name == rule })
	if i < 0 {
		return nil, fmt.Errorf("there is no rule %.80q; notify.list names the rules", rule)
	}

	results = map[string]error{}
	r := &s.cfg.Rules[i]
	var mu sync.Mutex
	var all sync.WaitGroup
	for j := range r.To {
		to := &r.To[j]
		all.Go(func() {
			a := alert.Tried(rule, user, s.cfg.Node, s.cfg.Now())
			m := &alert.Message{ID: alert.Digest(to.ID, a.ID), Rule: rule, To: to.ID, Alerts: []alert.Alert{a}}
			err := send.New(to).Send(ctx, m)
			mu.Lock()
			defer mu.Unlock()
			results[to.Name] = err
		})
	}
	all.Wait()
	return results, nil
}
