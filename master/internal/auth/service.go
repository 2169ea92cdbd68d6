package auth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"saltern/master/crypt"
	"saltern/master/keys"
	"saltern/master/value"
)

// Tags of the events that sign-ins fire (salt/utils/event.py tagify).
const (
	TagAuth = "salt/auth"
	TagKey  = "salt/key"
)

// Acts of a sign-in, as in the event "salt/auth".
const (
	ActAccept = "accept"
	ActPend   = "pend"
	ActReject = "reject"
	ActDenied = "denied"
	ActFull   = "full"
	ActError  = "error"
)

// Defaults of Config. A minion waits 5 s for an answer (auth_timeout), so a queue that takes longer
// than that to serve is useless.
const (
	defaultQueue   = 2048
	defaultMaxWait = 4 * time.Second
)

// Presence knows which minions are connected, and from which addresses they send requests.
type Presence interface {
	// CountWith returns how many minions are connected, and whether id is one of them.
	CountWith(id string) (count int, has bool)
	// LastRequest returns the address and the time of the last authenticated request of id.
	LastRequest(id string) (from netip.Addr, at time.Time, ok bool)
}

// Config of a Service. Keys and Secrets are required.
type Config struct {
	Keys     *keys.Store
	Secrets  *Secrets
	Autosign *keys.Autosign // may be nil: no rule accepts or rejects a key
	// PublishPort is the publish port that the master sends to minions, usually 4505.
	PublishPort int
	// OpenMode is open_mode: the service accepts every key and overwrites the key on file. It
	// disables authentication.
	OpenMode bool
	// MaxMinions is max_minions, 0 for no limit. It requires Presence.
	MaxMinions int
	// Presence may be nil: it is not known which minions are connected.
	Presence Presence
	// ClusterEvents enables the event salt/key, which informs the other masters of the cluster
	// about keys that this master has accepted.
	ClusterEvents bool
	// NoEvents is auth_events: False. EventGrains is auth_events_autosign_grains: it lists the acts
	// whose events include the minion's grains.
	NoEvents    bool
	EventGrains []string
	// Events is called with each event. It must not block. It may be nil: events are dropped.
	Events func(tag string, data *value.Map)
	// Admit is called before a minion gets its keys, with the process that signs in, see [Process].
	// Admit may block. If it returns an error, the minion is asked to sign in again later. It may
	// be nil: every minion is admitted.
	Admit func(ctx context.Context, id string, p Process) error
	// Workers is how many sign-ins do RSA work at once; 0 means one for each processor. Queue is
	// how many sign-ins may wait, MaxWait how long each may wait; 0 means the default.
	Workers int
	Queue   int
	MaxWait time.Duration
	Logger  *slog.Logger // nil means no log
	// Trouble returns why keys cannot be stored now, or "". Minions see the text. It may be nil:
	// keys can always be stored.
	Trouble func() string
	// Decided is called for each key that a rule accepted or rejected without an administrator. It
	// may be nil.
	Decided func(id, rule string, st keys.State, from netip.Addr)
}

// Stats are counters since the start.
type Stats struct {
	SignIns  uint64 // requests answered, including refusals
	Accepted uint64 // sign-ins accepted
	Busy     uint64 // sign-ins refused because a queue was full or too slow
	Tokens   uint64 // token checks that took a public-key operation
}

// Service signs minions in and authenticates their requests. All methods may be called
// concurrently.
type Service struct {
	cfg Config
	log *slog.Logger

	known *gate // bounds the RSA work of all sign-ins
	// strangers bounds the RSA work for minions without an accepted key and for those that sign in
	// too often. Their sign-ins must pass the gate strangers and after it the gate known.
	strangers *gate
	pace      *signInPace
	disk      *gate       // bounds the changes of the key store
	closed    atomic.Bool // Close has taken all slots of disk

	rechecks rechecks

	tokens sync.Map // id → verified

	mismatches, badTokens, full, unstored limitedLog
	stats                                 struct{ signIns, accepted, tokens atomic.Uint64 }
}

// diskSlots is how many key changes run at once. New keys that wait together for a volume are
// written to one file there. A change that hangs keeps its slot, so at most diskSlots changes hang.
const diskSlots = 64

// New returns a Service. It logs each weakness that Warnings returns.
func New(cfg Config) (*Service, error) {
	if cfg.Keys == nil || cfg.Secrets == nil {
		return nil, errors.New("make the sign-in service: keys and secrets are required")
	}
	if cfg.MaxMinions > 0 && cfg.Presence == nil {
		return nil, errors.New("make the sign-in service: max_minions needs a count of connected minions")
	}

	cfg.Autosign = cmp.Or(cfg.Autosign, keys.NewAutosign(keys.AutosignConfig{}))
	if cfg.Workers <= 0 {
		cfg.Workers = runtime.GOMAXPROCS(0)
	}

	if cfg.Queue <= 0 {
		cfg.Queue = defaultQueue
	}

	if cfg.MaxWait <= 0 {
		cfg.MaxWait = defaultMaxWait
	}

	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	s := &Service{
		cfg:       cfg,
		log:       cfg.Logger,
		known:     newGate(cfg.Workers, cfg.Queue, cfg.MaxWait),
		strangers: newGate(max(1, cfg.Workers/2), cfg.Queue, cfg.MaxWait),
		pace:      newSignInPace(),
		disk:      newGate(diskSlots, cfg.Queue, cfg.MaxWait),
	}

	for _, o := range []*limitedLog{&s.mismatches, &s.badTokens, &s.full, &s.unstored} {
		o.now = cfg.Secrets.cfg.Now
	}

	cfg.Keys.OnChange(s.forget)
	for _, w := range s.Warnings() {
		s.log.Warn(w)
	}

	return s, nil
}

// Warnings returns the weaknesses of the configuration that a status page should show.
func (s *Service) Warnings() (w []string) {
	if s.cfg.OpenMode {
		w = append(w, "open_mode is on: any host can take the place of any minion")
	}
	if s.cfg.Autosign.Open() {
		w = append(w, "auto_accept is on: any host can become a minion")
	}
	return w
}

// Close waits until no key change is running. Afterwards the service stores no key, and a sign-in
// that would store one is answered with a request to sign in again later. Close returns the error
// of ctx. A second call does nothing.
func (s *Service) Close(ctx context.Context) error {
	if s.closed.Load() {
		return nil
	}

	for i := range cap(s.disk.slots) {
		select {
		case s.disk.slots <- struct{}{}:
		case <-ctx.Done():
			for range i {
				s.disk.freeSlot()
			}
			return fmt.Errorf("wait for key files to be written: %w", ctx.Err())
		}
	}

	s.closed.Store(true)
	return nil
}

// Stats returns the counters.
func (s *Service) Stats() Stats {
	return Stats{
		SignIns:  s.stats.signIns.Load(),
		Accepted: s.stats.accepted.Load(),
		Busy:     s.known.turnedAway.Load() + s.strangers.turnedAway.Load() + s.disk.turnedAway.Load(),
		Tokens:   s.stats.tokens.Load(),
	}
}

// Event is the outcome of a sign-in.
type Event struct {
	Act    string // one of the Act constants; "" when the id could not be read
	ID     string
	Pub    string // the offered key; "" when the load contained no valid key
	Result bool   // the key is accepted or pending
}

// SignIn answers the load of an _auth request with the complete payload: a map, or a text if a map
// is impossible. It returns no error, because the answer tells the minion what to do. Events go to
// Config.Events. SignIn blocks until the answer is ready; it returns a busy answer if the queues
// are full or ctx ends.
func (s *Service) SignIn(ctx context.Context, load *value.Map, version int64, from netip.AddrPort) any {
	payload, _ := s.SignInEvent(ctx, load, version, from)
	return payload
}

// Unsigned answers. A minion treats a text as a failed sign-in: it opens a new connection and signs
// in again after acceptance_wait_time, as it does after "full".
const (
	badLoad  = "bad load"
	busyText = "master is busy, sign in again later"
	// notStored is the answer if a key cannot be stored. The minion logs the reason that it
	// contains.
	notStored = "the master cannot store the key, %s; sign in again later"
)

func unsigned(ret any) *value.Map {
	return value.NewMap("enc", "clear", "load", value.NewMap("ret", ret))
}

// SignInEvent works like SignIn, and also returns the Event.
func (s *Service) SignInEvent(ctx context.Context, load *value.Map, version int64, from netip.AddrPort) (any, Event) {
	s.stats.signIns.Add(1)
	r, err := parseRequest(load, version)
	if err != nil {
		s.log.Info("sign-in refused", "peer", from, "error", err)
		return badLoad, Event{}
	}

	if _, err := crypt.SignatureHash(r.sigAlgo); err != nil {
		s.log.Info("sign-in with an unsupported signing algorithm", "minion", r.id, "peer", from, "error", err)
		return unsigned("bad sig algo"), Event{ID: r.id}
	}

	v := s.decide(ctx, r, from)
	if v.busyReason != "" {
		return fmt.Sprintf(notStored, v.busyReason), Event{ID: r.id}
	}
	if v.busy {
		return busyText, Event{ID: r.id}
	}

	a := v.prepared
	if a == nil {
		a = s.answer(ctx, r, v, from)
	}

	if a.accepted && s.cfg.Admit != nil {
		if err := s.cfg.Admit(ctx, r.id, a.process); err != nil {
			s.log.Warn("sign-in is put off", "minion", r.id, "peer", from, "error", err)
			return busyText, Event{ID: r.id}
		}
	}

	if a.accepted {
		s.stats.accepted.Add(1)
		s.log.Info("minion signed in", "minion", r.id, "peer", from)
	}

	ev := Event{Act: a.act, ID: r.id, Pub: r.pub, Result: a.act == ActAccept || a.act == ActPend}
	s.fireEvents(r, v, ev)
	return a.payload, ev
}

// request is an _auth load whose fields have the right types.
type request struct {
	id, pub          string // pub is normalised
	nonce            string
	encAlgo, sigAlgo string
	token            []byte
	grains           *value.Map
	version          int64
}

const (
	maxNonce = 64
	maxPub   = 4096
)

// parseRequest reads the fields of a load (crypt.py minion_sign_in_payload).
func parseRequest(load *value.Map, version int64) (request, error) {
	r := request{version: version, grains: load.Map("autosign_grains")}
	var ok bool
	text := func(key, fallback string) (string, error) {
		v, has := load.Get(key)
		if !has {
			return fallback, nil
		}

		s, ok := v.(string)
		if !ok {
			return "", fmt.Errorf("field %s is a %T", key, v)
		}

		return s, nil
	}

	var err error
	if r.id, err = text("id", ""); err != nil {
		return r, err
	}

	if r.nonce, err = text("nonce", ""); err != nil {
		return r, err
	}
	if version >= 2 && (r.nonce == "" || len(r.nonce) > maxNonce) {
		return r, fmt.Errorf("nonce of %d bytes", len(r.nonce))
	}

	if r.encAlgo, err = text("enc_algo", crypt.OAEPSHA1); err != nil {
		return r, err
	}

	if r.sigAlgo, err = text("sig_algo", crypt.PKCS1SHA1); err != nil {
		return r, err
	}

	if r.pub, err = text("pub", ""); err != nil {
		return r, err
	}
	if len(r.pub) > maxPub {
		return r, fmt.Errorf("public key of %d bytes", len(r.pub))
	}

	r.pub = crypt.NormalizePEM(r.pub)
	if _, has := load.Get("token"); has {
		if r.token, ok = load.Bytes("token"); !ok {
			return r, errors.New("token is not bytes")
		}
	}

	return r, nil
}

// fireEvents fires the event of a sign-in (master.py _auth_impl). Its fields are in the order in
// which the Python master sends them.
func (s *Service) fireEvents(r request, v verdict, ev Event) {
	if s.cfg.Events == nil || ev.Act == "" {
		return
	}

	if v.newlyStored && s.cfg.ClusterEvents && ev.Act == ActAccept {
		s.cfg.Events(TagKey, value.NewMap("result", true, "act", ActAccept, "id", r.id, "pub", r.pub))
	}

	if s.cfg.NoEvents {
		return
	}

	data := value.NewMap("result", ev.Result, "act", ev.Act, "id", r.id, "pub", r.pub)
	if ev.Act == ActDenied {
		data = value.NewMap("result", ev.Result, "id", r.id, "act", ev.Act, "pub", r.pub)
	}

	if r.grains.Len() > 0 && slices.Contains(s.cfg.EventGrains, ev.Act) {
		data.Set("autosign_grains", r.grains)
	}

	s.cfg.Events(TagAuth, data)
}

// pythonText returns the value of a grain as Python's str() prints it, because the autosign files
// contain grains in that form. It returns false for a value that has no such form.
func pythonText(v any) (string, bool) {
	switch v := v.(type) {
	case nil:
		return "None", true
	case string:
		return v, true
	case bool:
		if v {
			return "True", true
		}
		return "False", true
	case int64, uint64:
		return fmt.Sprint(v), true
	}

	return "", false
}

// grainTexts returns the grains by which autosign may accept a new key, as texts.
func grainTexts(m *value.Map) map[string]string {
	if m.Len() == 0 || m.Len() > 64 {
		return nil
	}
	out := make(map[string]string, m.Len())
	for k, v := range m.All() {
		name, ok := k.(string)
		if text, isText := pythonText(v); ok && isText && !strings.ContainsAny(name, "/\x00") {
			out[name] = text
		}
	}
	return out
}
