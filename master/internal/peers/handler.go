package peers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"saltern/internal/control"
	"saltern/master/cache"
	"saltern/master/cluster"
	clusterwire "saltern/master/cluster/wire"
	"saltern/master/crypt"
	"saltern/master/event"
	"saltern/master/internal/auth"
	"saltern/master/internal/eauth"
	"saltern/master/internal/launch"
	"saltern/master/internal/notify"
	"saltern/master/internal/pillar"
	"saltern/master/internal/presence"
	"saltern/master/internal/repos"
	"saltern/master/internal/request"
	"saltern/master/jobs"
	"saltern/master/keys"
	"saltern/master/redact"
	"saltern/master/value"
)

// Config of a Handler.
type Config struct {
	Key         crypt.Key // cluster key when the master starts
	Secrets     *auth.Secrets
	Bus         *event.Bus
	Fire        func(tag string, data *value.Map)
	Launch      *launch.Launcher
	Publish     func(ctx context.Context, load *value.Map, minions []string) error
	Jobs        *jobs.Cluster
	KeepReturns bool // returns are stored in the job cache
	Pillars     *pillar.Service
	Repos       *repos.Service
	Cache       *cache.Store // minion data that all masters share
	Keys        *keys.Store
	Nonces      *request.Nonces
	Lockout     *eauth.Lockout
	Missed      *presence.Resender
	Notify      *notify.Service // may be nil: there are no rules for notifications
	// Problem reports a persistent fault. If err is nil, the fault has ended.
	Problem func(fault control.Fault, err error)
	Log     *slog.Logger
}

// Handler handles the messages of peers. It implements cluster.Handler.
type Handler struct {
	cfg        Config
	member     *Membership
	removed    chan struct{}
	removeOnce sync.Once

	mu      sync.Mutex
	lastKey string // the cluster key that was last passed to Keys
}

// newHandler returns a Handler for a master that is a member of a cluster.
func newHandler(member *Membership, cfg Config) *Handler {
	return &Handler{cfg: cfg, member: member, lastKey: cfg.Key.String(), removed: make(chan struct{})}
}

// WhenRemoved returns a channel that is closed when this master has been removed from the cluster.
func (h *Handler) WhenRemoved() <-chan struct{} { return h.removed }

// Keys sets the cluster's publish key and seed, which replace the previous ones at once.
func (h *Handler) Keys(key crypt.Key, seed string) error {
	if err := errors.Join(h.cfg.Secrets.SetClusterKey(key), h.cfg.Secrets.SetClusterSeed(seed)); err != nil {
		return err
	}
	h.mu.Lock()
	changed := h.lastKey != key.String()
	h.lastKey = key.String()
	h.mu.Unlock()
	if changed {
		h.cfg.Fire("key", value.NewMap("rotate_aes_key", true))
	}
	return nil
}

// Event fires an event of a peer on this master's bus, and executes the order that the event
// contains, if any. If the event announces a job, Event also records the job. Event does not fire
// an event that is only for this master, such as a result to store.
func (h *Handler) Event(ctx context.Context, peer string, e event.Event) error {
	if event.MayOrder(e, event.RunKeep) {
		return h.keepRun(ctx, peer, e.Data)
	}
	if event.MayOrder(e, event.JobStart) {
		h.learnJob(ctx, peer, e)
	}

	if event.MayOrder(e, event.PillarClear) {
		h.cfg.Pillars.Drop(e.Data.Str("id"))
	}

	if event.MayOrder(e, event.LoginLock) {
		h.cfg.Lockout.Adopt(e.Data, time.Now())
	}

	if event.MayOrder(e, event.GitFollow) {
		h.cfg.Repos.Peer(peer, e.Tag, e.Data)
	}

	e.Data = redact.Event(e.Tag, e.Data)
	if err := h.cfg.Bus.Relay(e); err != nil {
		h.cfg.Log.Warn("event of a peer cannot be fired", "peer", peer, "tag", e.Tag, "error", err)
	}

	return nil
}

// learnJob records the job of a peer. e is the event of the job's start.
func (h *Handler) learnJob(ctx context.Context, peer string, e event.Event) {
	jid := e.Data.Str("jid")
	if !jobs.Valid(jid) || e.Tag != event.Tag("job", jid, "new") {
		return
	}

	load := e.Data.Clone()
	for _, k := range []string{"_stamp", clusterwire.PeerField, "minions", "missing"} {
		load.Delete(k)
	}

	// Do not wait for the disk: the job itself follows, and must not be delayed.
	err := h.cfg.Launch.Learn(ctx, jid, e.Data, func() error {
		return h.cfg.Jobs.StageCopy(ctx, peer, jid, load, e.Data.Texts("minions"))
	})
	if err != nil {
		h.cfg.Problem(control.JobCacheFault, err)
		h.cfg.Log.Error("the job of a peer is not kept", "jid", jid, "peer", peer, "error", err)
	}
}

// keepRun stores the result of a runner or wheel function that ran on a peer, so that this master,
// too, shows it as a job.
func (h *Handler) keepRun(ctx context.Context, peer string, load *value.Map) error {
	if !jobs.Valid(load.Str("jid")) || keys.ValidID(load.Str("id")) != nil {
		h.cfg.Log.Warn("the result of a function at a peer is not usable", "peer", peer)
		return nil
	}
	if !h.cfg.KeepReturns {
		return nil
	}

	kept := load.Clone()
	kept.Delete(clusterwire.PeerField)
	return h.keepCopy(ctx, peer, kept)
}

// Publish sends the job of a peer to this master's minions, under the same job id. A late job is
// sent only to minions that have not run it.
func (h *Handler) Publish(ctx context.Context, peer string, load *value.Map, late cluster.Late) error {
	if !jobs.Valid(load.Str("jid")) {
		h.cfg.Log.Warn("the job of a peer has no valid id", "peer", peer)
		return nil
	}

	j, err := h.cfg.Launch.New(ctx, load)
	if err != nil {
		h.cfg.Log.Warn("the target of a peer's job cannot be read", "peer", peer, "jid", load.Str("jid"), "error", err)
		j = &launch.Job{}
	}

	if late.Brought && h.cfg.Missed.Remembers(load.Str("jid"), late.Age) {
		return nil
	}

	if late.Age > 0 {
		err = h.cfg.Missed.PublishLate(ctx, load, j.Minions, late.Age, late.Passed)
	} else {
		err = h.cfg.Publish(ctx, load, j.Minions)
	}

	if err != nil {
		return fmt.Errorf("publish job %s of a peer: %w", load.Str("jid"), err)
	}

	return nil
}

// JobReachedLate publishes a job of this master a second time, because the job has reached a peer
// late. Minions may have moved from that peer to this master before the peer received the job.
func (h *Handler) JobReachedLate(load *value.Map, age time.Duration) {
	load = load.Clone()
	load.Delete("_stamp")
	var minions []string
	if j, err := h.cfg.Launch.New(context.Background(), load); err == nil {
		minions = j.Minions
	}
	h.cfg.Missed.JobReachedLate(load, minions, age)
}

// LostJob reports a job of this master that never reached a peer.
func (h *Handler) LostJob(peer string, load *value.Map) { h.member.undelivered.jobLost(peer, load) }

// Passed returns how many loads this master has published in the last period of length age.
func (h *Handler) Passed(age time.Duration) int {
	return h.cfg.Missed.Passed(h.member.now().Add(-age))
}

// Return stores a return that a peer has received.
func (h *Handler) Return(ctx context.Context, peer, tag string, load *value.Map) error {
	jid, id := load.Str("jid"), load.Str("id")
	if !jobs.Valid(jid) || keys.ValidID(id) != nil || tag != event.Tag("job", jid, "ret", id) {
		h.cfg.Log.Warn("the return of a peer is not usable", "peer", peer, "tag", tag)
		return nil
	}
	if !h.cfg.Launch.MayReturn(ctx, jid, id) {
		return cluster.ErrRefused
	}
	if !h.cfg.KeepReturns || load.Bool(event.RefusedField) {
		return nil
	}

	return h.keepCopy(ctx, peer, load.Clone())
}

// keepCopy stores a return or result of a peer. load is complete, and the caller does not use it
// afterwards.
func (h *Handler) keepCopy(ctx context.Context, peer string, load *value.Map) error {
	taken := stampOf(load, h.member.now())
	load.Delete("_stamp")
	ret := jobs.ReturnOf(load)
	ret.Time = taken
	if err := h.cfg.Jobs.SaveCopy(ctx, peer, ret); err != nil && !errors.Is(err, jobs.ErrTooLarge) {
		h.cfg.Problem(control.JobCacheFault, err)
		return fmt.Errorf("keep the return of %s for job %s: %w", ret.ID, ret.JID, err)
	}

	h.cfg.Problem(control.JobCacheFault, nil)
	return nil
}

// stampOf returns when a peer took a return, or the zero time if the stamp is missing, or so far from
// now that a clock is wrong.
func stampOf(load *value.Map, now time.Time) time.Time {
	const mostApart = time.Hour
	t, err := time.Parse(time.RFC3339Nano, load.Str("_stamp"))
	if err != nil || t.Sub(now).Abs() > mostApart {
		return time.Time{}
	}
	return t
}

// PeerSubscribed stores a peer's report of how many subscriptions each address has at that peer.
func (h *Handler) PeerSubscribed(peer string, from netip.Addr, s cluster.Subs) {
	h.cfg.Missed.PeerSubscribed(peer, from, s)
}

// PeerCutOff adds marks for subscriptions that ended at a peer and may have missed jobs.
func (h *Handler) PeerCutOff(_ string, cuts []cluster.Cut) { h.cfg.Missed.PeerCutOff(cuts) }

// LearnStarts records new processes of minions, so that jobs which their earlier processes may have
// run are not sent to them. It returns the starts that this master did not know.
func (h *Handler) LearnStarts(_ string, starts []cluster.Start) []cluster.Start {
	return h.member.Started.Learn(starts, h.member.now())
}

// KnownStarts returns at most limit of the known processes of minions.
func (h *Handler) KnownStarts(limit int) []cluster.Start {
	return h.member.Started.All(limit, h.member.now())
}

// PeerLost schedules resends for the subscriptions of a lost peer. It also writes to the shared
// directory the jobs of that peer, as far as this master has copies of them.
func (h *Handler) PeerLost(peer string, heard time.Time) {
	h.cfg.Missed.PeerLost(peer, heard)
	h.cfg.Jobs.PeerLost(peer)
}

// PeerConnected sends a new peer the data that the peer may lack.
func (h *Handler) PeerConnected(peer string) {
	h.member.share.Connected(peer)
	h.cfg.Notify.PeerConnected(peer)
	h.cfg.Missed.PeerConnected(peer)
	h.member.peerBack()
}

// PeerData takes minion data, or a message about notifications, that a peer has sent.
func (h *Handler) PeerData(peer string, b []byte) {
	if !h.cfg.Notify.PeerData(peer, b) {
		h.member.share.Receive(peer, b)
	}
}

// KeyChanged reads a minion's key from the key directory if the state st, which a peer has
// reported, differs from the state that this master knows.
func (h *Handler) KeyChanged(id string, st clusterwire.KeyState, pub string) {
	h.cfg.Keys.Hint(id, keyState(st), pub)
}

// keyState returns the state of a key in an event of a peer.
func keyState(st clusterwire.KeyState) keys.State {
	switch st {
	case clusterwire.KeyAccepted:
		return keys.Accepted
	case clusterwire.KeyPending:
		return keys.Pending
	case clusterwire.KeyRejected:
		return keys.Rejected
	case clusterwire.KeyDenied:
		return keys.Denied
	}
	return keys.None
}

// LearnNonces records requests that a peer has taken, so that this master refuses them.
func (h *Handler) LearnNonces(taken []request.NonceKey) { h.cfg.Nonces.Learn(taken) }

// OwnNonces returns at most limit requests that this master has taken.
func (h *Handler) OwnNonces(limit int) []request.NonceKey { return h.cfg.Nonces.Own(limit) }

// Removed closes the channel of WhenRemoved. It is called when this master was removed from the
// cluster.
func (h *Handler) Removed() { h.removeOnce.Do(func() { close(h.removed) }) }
