package batch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"saltern/master/event"
	"saltern/master/history/summary"
	"saltern/master/jobs"
	"saltern/master/value"
)

const (
	// maxActive bounds the number of batches that the Manager runs at once. Overflow policy: a new
	// batch waits until another one ends. The first minions of the new batch already have the job,
	// and their returns are stored in the job cache.
	maxActive = 256
	// maxWaiting bounds the number of batches that wait. Overflow policy: a new batch is halted,
	// and an event reports that.
	maxWaiting = 10_000
)

// Publisher publishes the slices of a batch.
type Publisher interface {
	// StartSlice publishes a load of the form {fun, arg, tgt, tgt_type, ret, jid, user}.
	StartSlice(ctx context.Context, load *value.Map) error
}

// Jobs is the job cache.
type Jobs interface {
	// Load returns the load of a job. The load's user is the user for whom the master accepted the
	// first slice.
	Load(ctx context.Context, jid string) (*value.Map, error)
	// Returns returns the returns of a job that are in the job cache, by minion.
	Returns(ctx context.Context, jid string) (*value.Map, error)
}

// Config configures a Manager. All fields but Orders are required.
type Config struct {
	Dir       string // option cachedir
	HashType  string // option hash_type, which determines the directory of a job below Dir
	ID        string // of this master; other masters name it as the one that runs a batch
	Jobs      Jobs
	Publisher Publisher
	Orders    Orders // may be nil: there are no other masters
	// UserKey returns the key of the master's user. If an event contains this key, the state in the
	// event is genuine.
	UserKey func() (string, error)
	// Adopted is called once for each batch when this master begins to run it. For a queued batch,
	// Adopted is called when the batch leaves the queue.
	Adopted func(jid string, kept *value.Map)
	Fire    func(tag string, data *value.Map)
	Now     func() time.Time
	Log     *slog.Logger
}

// Manager runs the batches of `salt --batch --async`. The tool publishes the job to the first
// minions. It stores the batch's state in .batch.p in the job's directory, or sends the state in
// the event salt/batch/<jid>/new; then it ends. For a batch that a tool runs itself, Manager stores
// the states in the tool's events, for the runner batch.status.
//
// Whoever runs a batch publishes its slices without a further check of permissions. Therefore the
// Manager adopts only genuine states: states in the file, which only the master's account and root
// can write, and states in events that contain the key of the master's user. It ignores all other
// states ([event.MayOrder]).
//
// The Manager writes a state to the disk before it sends the job to the minions in that state. If
// the master dies between the two steps, no minion runs the job twice, and the Manager treats the
// minions that got no job as timed out. (salt/utils/batch_manager.py)
type Manager struct {
	cfg     Config
	batches map[string]*driven
	waiting []string // jids in order of arrival
	begins  chan beginning
	stops   chan stopping
	looks   chan orderLook
	stopped chan struct{}                   // closed when Run has ended
	wanted  atomic.Pointer[map[string]bool] // ids of the batches whose returns Run needs

	// Times at which the last look for orders that succeeded, or failed, began.
	goodLook, failedLook time.Time
	disobeyed            map[string]time.Time // when orders for batches could not be obeyed, by job id
	heldBack             bool                 // a batch waits until the orders are known, and the log says so
}

type driven struct {
	*State
	kept *value.Map // the state in the form of .batch.p
	// begun means that some minions have the job. Without it, an [Own] batch ends when its job cannot
	// be sent.
	begun bool
	// callerWaits means that the caller who begins the batch waits: nobody can have ordered to stop it.
	callerWaits bool
}

// NewManager returns a Manager. The caller must call Run once.
func NewManager(cfg Config) *Manager {
	m := &Manager{
		cfg:       cfg,
		batches:   map[string]*driven{},
		begins:    make(chan beginning),
		stops:     make(chan stopping),
		looks:     make(chan orderLook),
		stopped:   make(chan struct{}),
		disobeyed: map[string]time.Time{},
	}
	m.updateWanted()
	return m
}

func (m *Manager) updateWanted() {
	ids := map[string]bool{}
	for jid := range m.batches {
		ids[jid] = true
	}
	m.wanted.Store(&ids)
}

var (
	batchTag  = regexp.MustCompile(`^salt/batch/([0-9_]{20,40})/(new|stop|progress|complete|halted)$`)
	returnTag = regexp.MustCompile(`^salt/job/([0-9_]{20,40})/ret/([^/]+)$`)
)

// Wants reports whether Run needs events with this tag. It may be called concurrently with Run.
func (m *Manager) Wants(tag string) bool {
	if !strings.HasPrefix(tag, "salt/job/") {
		return strings.HasPrefix(tag, "salt/batch/")
	}
	ids := *m.wanted.Load()
	if len(ids) == 0 {
		return false
	}
	t := returnTag.FindStringSubmatch(tag)
	return t != nil && ids[t[1]]
}

// Run adopts the unfinished batches and runs batches until ctx ends.
func (m *Manager) Run(ctx context.Context, events <-chan event.Event) {
	defer close(m.stopped)
	if m.cfg.Orders != nil {
		looking, stopLooking := context.WithCancel(ctx)
		var following sync.WaitGroup
		following.Go(func() { m.followOrders(looking) })
		defer following.Wait()
		defer stopLooking()
	}

	jids, err := m.activeJIDs()
	if err != nil {
		m.cfg.Log.Error("the list of batches cannot be read; those under way are not continued", "error", err)
	}

	for _, jid := range jids {
		_ = m.adoptBatch(ctx, jid, true)
	}

	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-events:
			if !ok {
				return
			}
			m.handle(ctx, e)
			if e.Lost > 0 {
				m.reconcileAll(ctx)
			}
		case b := <-m.begins:
			b.done <- m.begin(ctx, b)
		case s := <-m.stops:
			s.done <- m.stopNow(ctx, s.jid)
		case look := <-m.looks:
			look.obeyed <- m.obey(ctx, look)
		case <-tick.C:
			m.giveUpLate(ctx)
		}

		m.adoptWaiting(ctx)
	}
}

// adoptWaiting adopts waiting batches as long as maxActive allows.
func (m *Manager) adoptWaiting(ctx context.Context) {
	for len(m.waiting) > 0 && len(m.batches) < maxActive {
		jid := m.waiting[0]
		m.waiting = m.waiting[1:]
		_ = m.adoptBatch(ctx, jid, true)
	}
}

func (m *Manager) handle(ctx context.Context, e event.Event) {
	if t := returnTag.FindStringSubmatch(e.Tag); t != nil {
		b := m.batches[t[1]]
		if b == nil || !event.MayOrder(e, event.JobReturn) {
			return
		}

		if _, at := b.Active[t[2]]; at {
			b.Returned(t[2], returnCode(e.Data) > 0, m.cfg.Now())
			m.advance(ctx, t[1], b)
		}

		return
	}

	t := batchTag.FindStringSubmatch(e.Tag)
	if t == nil || e.Origin == event.Peer { // the master that the tool used runs the batch
		return
	}

	jid, state := t[1], e.Data.Map("state")
	order, asked := orderOf(t[2], state)
	if !asked || state != nil && m.batches[jid] != nil {
		return
	}

	may, err := event.MayOrderBy(e, order, m.cfg.UserKey)
	if !may {
		m.cfg.Log.Warn("a batch event is passed over: nothing proves that who made it may order that", "jid",
			jid, "tag", e.Tag, "origin", e.Origin, "error", err)
		return
	}

	switch order {
	case event.BatchKeep:
		m.keepOfTool(jid, state, t[2] == "complete" || t[2] == "halted")
	case event.BatchDrive: // the tool has not written the files: the master writes them
		m.keepOfTool(jid, withFields(state, e.Withheld()), false)
		_ = m.adoptBatch(ctx, jid, false)
	case event.BatchAdopt:
		_ = m.adoptBatch(ctx, jid, false)
	case event.BatchStop:
		if _, err := m.haltBatch(ctx, jid, e.Data.Str("reason")); err != nil {
			m.cfg.Log.Error("a batch is not stopped as a tool asked", "jid", jid, "error", err)
		}
	}
}

// orderOf returns the order that an event of a batch contains. ok is false if the event contains no
// order, as most events do: they only report progress. verb is the last part of the tag. state may
// be nil: the event has no state.
func orderOf(verb string, state *value.Map) (o event.Order, ok bool) {
	driver := state.Str("driver")
	switch {
	case state == nil && verb == "new":
		return event.BatchAdopt, true
	case state == nil && verb == "stop":
		return event.BatchStop, true
	case driver == "cli":
		return event.BatchKeep, verb != "stop"
	case driver == "master":
		return event.BatchDrive, verb == "new"
	}
	return 0, false
}

// keepOfTool stores the state of a batch that a tool runs.
func (m *Manager) keepOfTool(jid string, state *value.Map, ended bool) {
	err := m.writeState(jid, state)
	if err == nil {
		err = m.setActive(jid, !ended)
	}
	if err != nil {
		m.cfg.Log.Warn("the state of a batch is not kept; batch.status does not show it", "jid", jid, "error", err)
	}
}

// adoptBatch begins to run a batch. resumed means that the master ran the batch before it was
// restarted. Then minions that already have the job get their full time once more, because no
// master received answers during the restart. The error says why the batch neither runs nor waits. It
// is for the caller's caller: adoptBatch has logged it.
func (m *Manager) adoptBatch(ctx context.Context, jid string, resumed bool) error {
	if m.batches[jid] != nil {
		return nil
	}

	kept, err := m.readState(jid)
	if errors.Is(err, fs.ErrNotExist) && resumed {
		m.forget(jid)
		return err
	}

	var s *State
	if err == nil {
		s, err = parseState(kept)
	}

	if err != nil {
		m.cfg.Log.Error("a batch cannot be driven: its state cannot be read, and only its first minions have the job",
			"jid", jid, "error", err)
		return err
	}

	if kept.Str("driver") != "master" {
		return errors.New("its tool runs it")
	}

	if load, err := m.cfg.Jobs.Load(ctx, jid); err == nil && load.Str("user") != "" {
		kept.Set("user", load.Str("user"))
	}

	b := &driven{
		State:       s,
		kept:        kept,
		begun:       !kept.Bool(ownKey) || len(s.Active)+len(s.Done) > 0,
		callerWaits: !resumed,
	}
	isNew := !resumed && !slices.Contains(m.waiting, jid) && !kept.Bool(ownKey)
	if s.Halted == "" && len(m.batches) >= maxActive {
		if m.queueBatch(jid) {
			if isNew {
				m.cfg.Adopted(jid, kept)
			}
			return nil
		}
		s.Halted = fmt.Sprintf("the master drives %d batches already, and %d wait", len(m.batches), len(m.waiting))
	}

	if resumed {
		for id := range s.Active {
			s.Active[id] = m.cfg.Now()
		}
	}

	m.batches[jid] = b
	m.updateWanted()
	if err := m.setActive(jid, true); err != nil {
		m.cfg.Log.Warn("a batch is not continued after a restart of the master", "jid", jid, "error", err)
	}

	m.cfg.Log.Info("batch is driven by this master", "jid", jid, "user", kept.Str("user"), "pending", len(s.Pending))
	if isNew && s.Halted == "" {
		m.cfg.Adopted(jid, kept)
	}

	m.reconcile(ctx, jid, b)
	m.advance(ctx, jid, b)
	b.callerWaits = false
	if b.Halted != "" {
		return errors.New(b.Halted)
	}
	return nil
}

// queueBatch queues a batch until fewer than maxActive batches run. It returns false if the queue
// is full. The index on disk lists the batch while it waits.
func (m *Manager) queueBatch(jid string) bool {
	if slices.Contains(m.waiting, jid) {
		return true
	}
	if len(m.waiting) >= maxWaiting {
		return false
	}

	m.waiting = append(m.waiting, jid)
	if err := m.setActive(jid, true); err != nil {
		m.cfg.Log.Warn("a batch that waits is not continued after a restart of the master", "jid", jid, "error", err)
	}
	m.cfg.Log.Info("batch waits for others to end", "jid", jid, "driven", len(m.batches), "waiting", len(m.waiting))
	return true
}

// reconcile reads from the job cache the returns whose events the Manager has missed: those that
// arrived before the tool left the batch to the Manager, or while no master ran.
func (m *Manager) reconcile(ctx context.Context, jid string, b *driven) {
	rets, err := m.cfg.Jobs.Returns(ctx, jid)
	if err != nil {
		m.cfg.Log.Warn("the returns of a batch cannot be read", "jid", jid, "error", err)
		return
	}
	for id := range b.Active {
		if ret := rets.Map(id); ret != nil {
			b.Returned(id, returnCode(ret) > 0, m.cfg.Now())
		}
	}
}

func (m *Manager) reconcileAll(ctx context.Context) {
	for jid, b := range m.batches {
		m.reconcile(ctx, jid, b)
		m.advance(ctx, jid, b)
	}
}

// giveUpLate removes minions that have not answered in time, and opens slots whose --batch-wait has
// passed.
func (m *Manager) giveUpLate(ctx context.Context) {
	for jid, b := range m.batches {
		window := minionWindow(b.kept)
		isLate := func(since time.Time) bool { return m.cfg.Now().Sub(since) >= window }
		for _, since := range b.Active {
			if isLate(since) {
				m.reconcile(ctx, jid, b)
				break
			}
		}

		for id, since := range b.Active {
			if isLate(since) {
				b.TimedOut(id, m.cfg.Now())
			}
		}

		m.advance(ctx, jid, b)
	}
}

// advance publishes the job to the next minions or ends the batch, and stores the state if the
// state has changed.
func (m *Manager) advance(ctx context.Context, jid string, b *driven) {
	before := len(b.kept.Map("done").Keys()) + len(b.kept.Map("failed").Keys())
	var next []string
	if b.Halted == "" && len(b.Pending) > 0 && m.mayGoOn(b) {
		next, _ = b.Next(m.cfg.Now())
	}
	if len(next) == 0 && !b.Over() && before == len(b.Done)+len(b.Failed) {
		return
	}

	b.Fill(b.kept, m.cfg.Now())
	if err := m.writeState(jid, b.kept); err != nil {
		m.cfg.Log.Error("the state of a batch cannot be kept", "jid", jid, "error", err)
		if len(next) > 0 { // store the state first: no minion may run the job twice
			b.Halted = "its state cannot be written"
			b.Fill(b.kept, m.cfg.Now())
			next = nil
		}
	}

	if len(next) > 0 && !m.mayGoOn(b) { // writing the state took too long
		b.putBack(next)
		next = nil
		b.Fill(b.kept, m.cfg.Now())
		if err := m.writeState(jid, b.kept); err != nil {
			m.cfg.Log.Error("the state of a batch cannot be kept", "jid", jid, "error", err)
		}
	}

	if len(next) > 0 {
		m.publish(ctx, jid, b, next)
	}

	switch {
	case b.Halted != "":
		m.cfg.Log.Error("batch is halted", "jid", jid, "reason", b.Halted, "pending", len(b.Pending))
		m.fireEvent(jid, b, "halted", "reason", b.Halted, "abandoned_active", b.kept.Map("active").Keys(),
			"abandoned_pending", b.Pending)
		m.forget(jid)
	case b.Over():
		m.fireEvent(jid, b, "complete")
		m.forget(jid)
	default:
		m.fireEvent(jid, b, "progress", "total", len(b.kept.List("all_minions")), "active", len(b.Active),
			"pending", len(b.Pending))
	}
}

// publish publishes the job to the next minions. If that fails, no minion has the job, so they have
// failed; but if the master stops, they get it after its next start.
func (m *Manager) publish(ctx context.Context, jid string, b *driven, next []string) {
	err := m.cfg.Publisher.StartSlice(ctx, b.nextLoad(jid, next))
	if err == nil {
		b.begun = true
		return
	}

	if ctx.Err() != nil {
		b.putBack(next)
	} else {
		m.cfg.Log.Error("a batch cannot be published to its next minions", "jid", jid, "minions", next, "error", err)
		b.notSent(next, m.cfg.Now())
		if !b.begun {
			b.Halted = fmt.Sprintf("its first minions did not get the job: %v", err)
		}
	}
	b.Fill(b.kept, m.cfg.Now())
	if err := m.writeState(jid, b.kept); err != nil {
		m.cfg.Log.Error("the state of a batch cannot be kept", "jid", jid, "error", err)
	}
}

// nextLoad returns the load of the job for the next minions.
func (b *driven) nextLoad(jid string, ids []string) *value.Map {
	tgt := value.List(ids)
	arg := slices.Clone(b.kept.List("arg"))
	if kw := b.kept.Map("kwargs"); kw.Len() > 0 {
		kw = kw.Clone()
		kw.Set("__kwarg__", true)
		arg = append(arg, kw)
	}
	fun, _ := b.kept.Get("fun")
	load := value.NewMap("fun", fun, "arg", arg, "tgt", tgt, "tgt_type", "list", "ret", b.kept.Str("ret"),
		"jid", jid, "user", b.kept.Str("user"))
	if fields := JobFieldsOf(b.kept.Map(JobFieldsKey)); fields.Len() > 0 {
		load.Set("kwargs", fields)
	}
	for _, key := range []string{event.EauthField, jobs.AccountField} {
		if text := b.kept.Str(key); text != "" && b.kept.Bool(ownKey) {
			load.Set(key, text)
		}
	}
	for _, key := range []string{jobs.BatchField, jobs.SavedField} {
		if of := b.kept.Map(key); of != nil && b.kept.Bool(ownKey) {
			load.Set(key, of)
		}
	}
	return load
}

// fireEvent fires one of Salt's events about a batch (salt/utils/batch_output.py).
func (m *Manager) fireEvent(jid string, b *driven, verb string, fields ...any) {
	data := value.NewMap("jid", jid)
	for _, k := range []string{"fun", "tgt", "tgt_type", "user"} {
		v, _ := b.kept.Get(k)
		data.Set(k, v)
	}

	data.Set("completed", len(b.Done))
	data.Set("failed", len(b.Failed))
	if verb != "progress" {
		data.Set("total_minions", len(b.kept.List("all_minions")))
		data.Set("duration", seconds(m.cfg.Now())-numberIn(b.kept, "created", seconds(m.cfg.Now())))
	}

	for i := 0; i+1 < len(fields); i += 2 {
		data.Set(fields[i], fields[i+1])
	}

	m.cfg.Fire("salt/batch/"+jid+"/"+verb, data)
}

// forget removes a batch from the Manager, which then ignores it.
func (m *Manager) forget(jid string) {
	delete(m.batches, jid)
	m.waiting = slices.DeleteFunc(m.waiting, func(w string) bool { return w == jid })
	m.updateWanted()
	if err := m.setActive(jid, false); err != nil {
		m.cfg.Log.Warn("the list of batches cannot be written", "jid", jid, "error", err)
	}
}

// returnCode returns the return code in a return. For a compound job it returns the highest one.
func returnCode(ret *value.Map) int64 { return summary.RetcodeOf(ret.Value("retcode")) }
