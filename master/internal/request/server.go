package request

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"saltern/master/crypt"
	"saltern/master/msgpack"
	"saltern/master/value"
)

// Auth is the part of the sign-in service (package auth) that the server uses.
type Auth interface {
	// SignIn returns the complete payload that answers an _auth load.
	SignIn(ctx context.Context, load *value.Map, version int64, from netip.AddrPort) any
	// OpenRequest decrypts the load of an accepted minion in place, and returns the key that
	// decrypted the load. It must not create state for other ids.
	OpenRequest(id string, blob []byte) (body []byte, key crypt.Key, err error)
	// VerifyToken reports whether tok was made with the accepted key of id.
	VerifyToken(id string, tok []byte) bool
}

// Cluster is the part of the master's cluster that the server uses.
type Cluster interface {
	// Serving reports whether this master can serve requests. While Serving returns false, the
	// server answers every request other than a sign-in with cluster_retry.
	Serving() bool
	// ShareNonce informs the other masters which request this master takes, before the request has
	// any effect. It must not block.
	ShareNonce(k NonceKey)
}

// Config configures a Server. All fields are required, except TTL and those whose comment says what
// nil means.
type Config struct {
	Auth    Auth
	Methods Table
	// MinVersion is minimum_auth_version: the server refuses requests with an older protocol
	// version (CVE-2025-62349).
	MinVersion int64
	// TTL is request_server_ttl: the server refuses encrypted requests older than TTL. 0 means that
	// the server accepts requests of any age, which is Salt's default.
	TTL time.Duration
	// Nonces holds the requests that were taken before the start or by other masters. It may be
	// nil: only the requests of this process are recorded.
	Nonces *Nonces
	// Cluster is nil if this master is not in a cluster.
	Cluster Cluster
	// Timeout is how long a method may work on a request.
	Timeout time.Duration
	// Known reports whether any of a tool's credentials is valid. It must not block. It may be nil:
	// none is valid.
	Known func(Credentials) bool
	// Saw is called for each request of an authenticated minion. It may be nil.
	Saw func(id string, from netip.AddrPort)
	// SignInAgain reports whether an authenticated minion must sign in again before its request is
	// answered. It may be nil: no minion must.
	SignInAgain func(id, command string) bool
	Now         func() time.Time
	Log         *slog.Logger
}

// Stats are counters since the start.
type Stats struct {
	Requests, Refused, Failed, Replayed uint64
	Untimely                            uint64 // refused because of their age, see Config.TTL
	UntimelyWhy                         string // why the last untimely request was refused
}

// Server decodes, checks, dispatches and answers requests. Handle may be called by any number of
// goroutines.
type Server struct {
	cfg            Config
	replays        *replays
	proofs         *replays // nonces with which senders were authenticated
	refusals       refusals
	walks          walkLimit
	stats          struct{ requests, refused, failed, replayed, untimely atomic.Uint64 }
	untimelyReason atomic.Pointer[string] // see Stats.UntimelyWhy
	oldest         inflight
	// buffers holds *[]byte, each with a capacity of at least pooledMin bytes; see Recycle.
	buffers sync.Pool
}

const (
	replayEntries = 65536
	replayWindow  = 10 * time.Minute
	nonceLen      = 32
)

// New returns a Server.
func New(cfg Config) *Server {
	return &Server{
		cfg:     cfg,
		replays: newReplays(replayEntries, replayWindow),
		proofs:  newReplays(replayEntries, replayWindow),
		oldest:  newInflight(),
	}
}

// Stats returns the counters.
func (s *Server) Stats() Stats {
	why := ""
	if p := s.untimelyReason.Load(); p != nil {
		why = *p
	}
	return Stats{
		UntimelyWhy: why,
		Requests:    s.stats.requests.Load(),
		Refused:     s.stats.refused.Load(),
		Failed:      s.stats.failed.Load(),
		Replayed:    s.stats.replayed.Load(),
		Untimely:    s.stats.untimely.Load(),
	}
}

// Oldest returns how long the oldest request in progress has been worked on, and the number of
// requests in progress.
func (s *Server) Oldest() (time.Duration, int) { return s.oldest.oldest(s.cfg.Now()) }

// Handle returns the answer to one payload. If it returns nil, the caller must close the connection
// without an answer (see ErrSilence). account may be nil: the memory is not bounded. Handle
// overwrites payload when it decrypts the load.
func (s *Server) Handle(ctx context.Context, from netip.AddrPort, payload []byte, account Account) []byte {
	s.stats.requests.Add(1)
	now := s.cfg.Now()
	var c Call
	c.token = s.oldest.startRequest(now)
	defer func() { s.oldest.endRequest(c.token) }()

	if s.cfg.Timeout > 0 {
		d := &deadline{Context: ctx, at: time.Now().Add(s.cfg.Timeout)}
		defer d.stopTimer()
		ctx = d
	}

	answer, err := s.handle(ctx, &c, from, payload, account, now)
	if r, ok := errors.AsType[*refusal](err); ok {
		s.stats.refused.Add(1)
		s.refusals.add(from.Addr(), r.why, now)
		s.cfg.Log.Log(ctx, r.level, "request refused: "+r.why, "from", from)
		answer = r.answer
	} else if errors.Is(err, ErrLeft) {
		s.cfg.Log.Debug("request needs no answer", "from", from, "error", err)
		return nil
	} else if err != nil {
		s.stats.failed.Add(1)
		s.cfg.Log.Error("request failed", "from", from, "error", err)
		if errors.Is(err, ErrSilence) {
			return nil
		}
		answer = handlerFailed
	}

	if sealed, ok := answer.(sealed); ok {
		return sealed.bytes
	}

	out, err := msgpack.Marshal(answer, msgpack.Raw)
	if err != nil {
		s.stats.failed.Add(1)
		s.cfg.Log.Error("answer cannot be packed", "from", from, "error", err)
		out, _ = msgpack.Marshal(handlerFailed, msgpack.Raw)
	}

	return out
}

// routingError returns the answer of the worker pool router of Salt 3008 to a frame that the router
// cannot read (salt/master.py RequestRouter).
func routingError() *value.Map { return value.NewMap("error", "Routing error") }

// handle answers a payload. The caller sets only the token in c; handle sets the other fields.
func (s *Server) handle(
	ctx context.Context,
	c *Call,
	from netip.AddrPort,
	payload []byte,
	account Account,
	now time.Time,
) (any, error) {
	e, err := s.openEnvelope(payload, now)
	if err != nil {
		return nil, err
	}
	if e.load == nil || e.enc == nil {
		return nil, refuse(badLoad, "payload without enc or load")
	}

	version, ok := e.version.(int64)
	if e.version != nil && !ok {
		return nil, refuse(badLoad, "protocol version is a %T", e.version)
	}
	if version < s.cfg.MinVersion {
		return nil, refuse(badLoad, "protocol version %d is below minimum_auth_version %d", version, s.cfg.MinVersion)
	}

	switch e.enc {
	case "clear":
		load, err := s.clearLoad(e.load, account)
		if err != nil {
			return nil, err
		}
		return s.handleClear(ctx, from, load, version)
	case "aes":
		return s.handleEncrypted(ctx, c, from, e, version, account, now)
	}

	return nil, refuse(badLoad, "unknown encoding %.20q", fmt.Sprint(e.enc))
}

// checkID checks the id in a load as handle_message of salt/channel/server.py does. Package auth
// checks ids more strictly at the sign-in.
func checkID(load *value.Map) error {
	raw, ok := load.Get("id")
	if !ok {
		return nil
	}
	id, ok := raw.(string)
	if !ok {
		return refuse(fmt.Sprintf("bad load: id %.64s is not a string", fmt.Sprint(raw)), "id is a %T", raw)
	}
	if strings.ContainsRune(id, 0) {
		return refuse(nulInID, "id contains a null byte")
	}
	return nil
}

func (s *Server) isReady() bool { return s.cfg.Cluster == nil || s.cfg.Cluster.Serving() }

// clusterRetry returns the answer of a 3008 cluster member that cannot serve requests yet.
func clusterRetry() *value.Map {
	return value.NewMap("enc", "clear", "load", value.NewMap("ret", false, "cluster_retry", true))
}

func (s *Server) handleClear(ctx context.Context, from netip.AddrPort, raw any, version int64) (any, error) {
	load, ok := raw.(*value.Map)
	if !ok {
		return nil, refuse(notAMap, "clear load is a %T", raw)
	}

	if err := checkID(load); err != nil {
		return nil, err
	}

	cmd, ok := load.Get("cmd")
	if !ok {
		return nil, refuse(value.NewMap(), "clear load without cmd")
	}
	if cmd == "_auth" {
		return s.cfg.Auth.SignIn(ctx, load, version, from), nil
	}
	if !s.isReady() {
		return clusterRetry(), nil
	}

	name, _ := cmd.(string)
	m, ok := s.cfg.Methods[name]
	if !ok || !m.Local {
		return nil, notExposed(cmd)
	}

	return s.callMethod(ctx, name, m, &Call{Load: load, From: from})
}

func (s *Server) handleEncrypted(
	ctx context.Context,
	c *Call,
	from netip.AddrPort,
	e envelope,
	version int64,
	account Account,
	now time.Time,
) (any, error) {
	if !s.isReady() {
		return clusterRetry(), nil
	}

	blob, ok := msgpack.Contents(e.load)
	if !ok {
		return nil, refuse(badLoad, "encrypted load is not bytes")
	}

	outer, ok := e.id.(string)
	if !ok {
		return nil, refuse(badLoad, "encrypted load without an id")
	}

	body, key, err := s.cfg.Auth.OpenRequest(outer, blob)
	if err != nil {
		return nil, refuse(badLoad, "opening the request of %.64q: %v", outer, err)
	}

	v, err := unpack(body, msgpack.DefaultLimits, account)
	if errors.Is(err, errMemory) {
		// Send no answer, so that the minion repeats the request.
		return nil, fmt.Errorf("decode the request of %.64q: %w: %w", outer, err, ErrSilence)
	}
	if err != nil {
		return nil, refuse(badLoad, "decoding the request of %.64q: %v", outer, err)
	}

	load, ok := v.(*value.Map)
	if !ok {
		return nil, refuse(notAMap, "request of %.64q is a %T", outer, v)
	}

	if err := checkID(load); err != nil {
		return nil, err
	}

	if err := s.proveSender(c, outer, load, version, now); err != nil {
		return nil, err
	}

	if s.cfg.SignInAgain != nil && s.cfg.SignInAgain(outer, load.Str("cmd")) {
		return nil, refuse(badLoad, "%.64q is to sign in again, as its sign-in showed no token", outer)
	}

	s.parkable(c, body, account)
	if account != nil {
		// A sender whose request is a replay is not authenticated.
		account.Prove(func() bool {
			if c.Nonce == "" {
				return false
			}

			entry, first := s.proofs.claimEntry(outer, c.Nonce, now)
			if first {
				close(entry.done)
			}

			return first
		})
	}

	if s.cfg.Saw != nil {
		s.cfg.Saw(outer, from)
	}

	c.From = from
	c.EncAlgo, _ = e.encAlgo.(string)
	c.SigAlgo, _ = e.sigAlgo.(string)
	answer, err := s.dispatch(ctx, c)
	if err != nil {
		return nil, err
	}

	if p, ok := answer.(Plain); ok {
		return p.Payload, nil
	}

	return s.sealAnswer(key, c.Nonce, answer)
}

// proveSender checks the age, the id and the token of a decrypted load. It removes nonce and token
// from the load, and sets the fields of c.
func (s *Server) proveSender(c *Call, outer string, load *value.Map, version int64, now time.Time) error {
	if s.cfg.TTL > 0 {
		ts, ok := load.Int("ts")
		if age := now.Sub(time.Unix(ts, 0)); !ok || age > s.cfg.TTL || age < -s.cfg.TTL {
			return s.wrongTime(outer, ok, age)
		}
	}

	if load.Str("id") != outer {
		return refuse(badLoad, "request sealed by %.64q names %.64q", outer, load.Str("id"))
	}

	tok, ok := load.Bytes("tok")
	if !ok || !s.cfg.Auth.VerifyToken(outer, tok) {
		return refuse(badLoad, "token of %.64q is missing or wrong", outer)
	}

	nonce := load.Str("nonce")
	if len(nonce) != nonceLen && version >= 2 {
		return refuse(badLoad, "request of %.64q has no nonce", outer)
	}

	load.Delete("nonce")
	load.Delete("tok")
	c.ID = outer
	c.Load = load
	c.Nonce = nonce

	return nil
}

// wrongTime refuses a request because of its age. hasTime is false if the request contains no time.
// The minion gets only "bad load", so wrongTime logs the cause.
func (s *Server) wrongTime(id string, hasTime bool, age time.Duration) error {
	why := "does not say when it was made"
	switch {
	case hasTime && age > 0:
		why = fmt.Sprintf("was made %s ago by the clock of the minion", age.Round(time.Second))
	case hasTime:
		why = fmt.Sprintf("was made in %s from now by the clock of the minion", -age.Round(time.Second))
	}
	text := fmt.Sprintf("a request of %.64q %s, request_server_ttl allows %s: set the clock of the minion (a time service), or somebody plays a recorded request",
		id, why, s.cfg.TTL)
	s.stats.untimely.Add(1)
	s.untimelyReason.Store(&text)
	return &refusal{badLoad, text, slog.LevelWarn}
}

// Busy returns the answer to a request that the master is too busy to handle. For an unencrypted
// request it returns "bad load": a minion that signs in tries again some seconds later, and a tool
// reports an error to its user. For an encrypted request it returns nil, which means no answer: the
// minion then repeats the request after its time-out. After "bad load" that minion would sign in,
// immediately repeat the request once, and then fail (salt/channel/client.py _crypted_transfer).
func Busy(payload []byte) []byte {
	fields, err := msgpack.Fields(payload, strangeLimits, maxFields)
	if err != nil {
		return packed(badLoad)
	}
	for _, f := range fields {
		enc, _ := msgpack.Contents(f.Value)
		if string(f.Key) == "enc" && string(enc) == "aes" {
			return nil
		}
	}
	return packed(badLoad)
}

func packed(text string) []byte {
	b, _ := msgpack.Marshal(text, msgpack.Raw) // packing a text cannot fail
	return b
}
