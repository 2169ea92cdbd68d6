package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"saltern/internal/control"
	"saltern/master/cluster/node"
	"saltern/master/cluster/wire"
	"saltern/master/crypt"
	"saltern/master/internal/auth"
)

// Pool connects this master to its cluster. Create it with Open, end it with Close. All methods may
// be called concurrently.
type Pool struct {
	cfg         Config
	log         *slog.Logger
	folder      folder
	folderLog   *folderLog
	identity    auth.Identity // key pair of the cluster, which minions know
	session     crypt.Key     // AES key that seals events for Salt's masters
	announceSig func() ([]byte, error)
	tls         *tls.Config
	inc         string
	listener    net.Listener

	ctx    context.Context
	stop   context.CancelFunc
	wg     sync.WaitGroup
	opened time.Time

	mu       sync.Mutex // guards the fields up to earlyTaken; held while perform runs
	node     *node.Node
	links    map[string]*link
	strays   map[string]*link // links to masters that are not members
	commands map[uint64]chan error
	// spreadings holds, by job id, the jobs whose publish events are about to be forwarded; see
	// Spread.
	spreadings map[string]*spreading
	lastCmd    uint64
	refusal    string
	loggedTerm uint64 // term of the lease whose owner was logged last
	closed     bool
	earlyTaken takenMsg // digests of requests that peers reported before there was a handler

	view         atomic.Pointer[view]
	aliveAtTick  map[string]bool // members that were connected and alive at the last tick; used by tickLoop
	subs         atomic.Pointer[subsMsg]
	viewChanged  chan struct{} // has an element when the view has changed
	handler      atomic.Pointer[Handler]
	news         newsDesk
	tellers      tellers
	handlerSet   chan struct{} // closed by Serve, which sets the handler
	phaseChanged chan struct{} // closed and replaced at each change of phase, under mu

	folderBusy     atomic.Bool
	inbox          *inbox
	consensus      *consensus   // nil unless PlainPeers admits Salt's masters
	waitingSignIns atomic.Int64 // number of sign-ins that wait for the peers in Announce
	count          counters
}

// view is a snapshot of the record and of values derived from it. Connections read the view without
// a lock.
type view struct {
	rec      node.Record
	phase    node.Phase
	keys     []crypt.Key // the cluster's AES key, then the previous one
	sessions map[string]crypt.Key
}

type counters struct {
	refused, strangers, bad, dropped, withheld, unspread, handled, repeated atomic.Uint64
	// passed is the number of connections that this master relays at present.
	passed atomic.Int64
}

// ErrRemoved reports that this master was removed from the cluster.
var ErrRemoved = errors.New("this master was removed from the cluster; to join again it needs a new key and the present cluster_secret")

// Open prepares the shared folder, starts listening and joins the cluster. It retries until this
// master is a member or ctx ends. If ctx ends, the error contains the reason for which the peers
// refuse this master.
func Open(ctx context.Context, cfg Config) (*Pool, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}

	p := &Pool{
		cfg:          cfg,
		log:          cfg.Logger,
		opened:       cfg.Now(),
		folder:       folder{dir: cfg.Dir, salt: cfg.PlainPeers},
		folderLog:    newFolderLog(cfg.Logger),
		links:        map[string]*link{},
		strays:       map[string]*link{},
		commands:     map[uint64]chan error{},
		spreadings:   map[string]*spreading{},
		aliveAtTick:  map[string]bool{},
		viewChanged:  make(chan struct{}, 1),
		phaseChanged: make(chan struct{}),
		handlerSet:   make(chan struct{}),
	}

	if err := p.startParts(ctx); err != nil {
		return nil, fmt.Errorf("open the cluster: %w", err)
	}

	if err := p.waitForMembership(ctx); err != nil {
		p.Close()
		return nil, err
	}

	return p, nil
}

func (p *Pool) startParts(ctx context.Context) error {
	cfg := p.cfg
	prep, identity, err := p.folder.prepare(cfg)
	if err != nil {
		return err
	}

	p.identity = identity
	if f := cfg.fingerprint(); f != nil && !f(p.identity.Public) {
		return errors.New("cluster.pub in cluster_pki_dir does not have the fingerprint cluster_pub_fingerprint")
	}

	aes, err := p.folder.readKey()
	if err != nil {
		return err
	}

	if p.session, err = crypt.NewKey(nil); err != nil {
		return err
	}

	p.announceSig = sync.OnceValues(func() ([]byte, error) { return wire.AnnounceSig(cfg.Key, p.session) })
	cert, err := certificate(cfg.ID, cfg.Key)
	if err != nil {
		return err
	}

	p.tls = tlsConfig(cert)
	p.inc = newToken()
	p.node = node.New(node.Config{
		ID:               cfg.ID,
		Pub:              cfg.Pub,
		Inc:              p.inc,
		Peers:            prep.peers,
		ClusterPub:       p.identity.Public,
		Fingerprint:      cfg.fingerprint(),
		Found:            prep.found,
		Key:              aes.String(),
		Seed:             newSeed(),
		Secret:           cfg.Secret,
		AllowEmptySecret: cfg.AllowEmptySecret,
		SessionKey:       p.session,
		PublishSession:   cfg.PublishSession,
		Random:           systemRandom{},
	})

	p.view.Store(&view{sessions: map[string]crypt.Key{}})
	lc := net.ListenConfig{KeepAliveConfig: keepAlive, Control: cfg.control}
	if p.listener, err = lc.Listen(ctx, "tcp", net.JoinHostPort(cfg.Address, fmt.Sprint(cfg.Port))); err != nil {
		return fmt.Errorf("listen on cluster_pool_port: %w", err)
	}

	p.ctx, p.stop = context.WithCancel(context.Background())
	p.inbox = newInbox(p)
	if cfg.PlainPeers {
		p.consensus = newConsensus(p)
		p.wg.Go(p.consensus.runNode)
	}

	p.wg.Go(p.tickLoop)
	p.wg.Go(p.inbox.accept)
	return nil
}

// keepAlive detects a vanished host within 15 seconds.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 3 * time.Second, Count: 3}

// unheardFor is how long the other host may leave sent bytes unacknowledged before the kernel ends
// the connection. The link then dials again, so that the masters are connected soon after a network
// fault that dropped all packets. Without unheardFor TCP might wait half a minute before it
// retransmits.
const unheardFor = 6 * time.Second

// hangUp sets unheardFor as the TCP_USER_TIMEOUT of a socket (tcp(7)). Accepted sockets inherit it
// from the listener.
func hangUp(_, _ string, c syscall.RawConn) (err error) {
	if cerr := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unheardFor.Milliseconds()))
	}); cerr != nil {
		return cerr
	}
	return err
}

const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

// systemRandom implements node.Random with the system's random source.
type systemRandom struct{}

func (systemRandom) Token() string   { return newToken() }
func (systemRandom) NewSeed() string { return newSeed() }

func (systemRandom) NewKey() string {
	k, err := crypt.NewKey(nil)
	if err != nil {
		panic(err) // the system's random source never fails
	}
	return k.String()
}

func (systemRandom) Jitter(d time.Duration) time.Duration {
	return time.Duration(mathrand.Int64N(int64(d) + 1))
}

// newToken returns a random text that nobody can guess.
func newToken() string {
	b := make([]byte, wire.TokenLen)
	for i := range b {
		n, err := rand.Int(rand.Reader, big.NewInt(int64(len(letters))))
		if err != nil {
			panic(err) // the system's random source never fails
		}
		b[i] = letters[n.Int64()]
	}
	return string(b)
}

func newSeed() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// waitForMembership waits until this master belongs to the cluster.
func (p *Pool) waitForMembership(ctx context.Context) error {
	for {
		p.mu.Lock()
		phase, changed := p.node.Phase(), p.phaseChanged
		p.mu.Unlock()

		switch phase {
		case node.Active:
			return nil
		case node.Removed:
			return ErrRemoved
		}

		select {
		case <-changed:
		case <-ctx.Done():
			p.mu.Lock()
			refusal := p.refusal
			p.mu.Unlock()
			refusal = cmp.Or(refusal, "no peer has answered")
			return fmt.Errorf("join the cluster: %s: %w", refusal, ctx.Err())
		}
	}
}

// Serve sets the handler of the pool. Call it once. Messages that arrive before the call wait for
// the handler.
func (p *Pool) Serve(h Handler) error {
	if !p.news.setHandler(p, h) {
		return errors.New("the cluster is served already")
	}

	v := p.view.Load()
	if err := h.Keys(v.keys[0], v.rec.Seed); err != nil {
		return fmt.Errorf("take the cluster's keys: %w", err)
	}

	close(p.handlerSet)
	p.mu.Lock()
	links, early := slices.Collect(maps.Values(p.links)), p.earlyTaken
	p.earlyTaken = nil
	p.mu.Unlock()

	h.LearnNonces(early)
	for _, l := range links {
		if !l.plain && l.up.Load() {
			l.allTaken()
			l.wakeWriter() // links announce the started minions once there is a handler
			h.PeerConnected(l.id)
		}
	}

	p.wg.Go(func() { p.applyKeys(h, v.rec.KeyGen, v.rec.SeedGen) })
	return nil
}

// applyKeys passes new keys and this master's removal to the handler until the pool is closed, in
// the order of the changes and without holding locks. gen and seedGen are the generations of the
// keys that the handler has.
func (p *Pool) applyKeys(h Handler, gen, seedGen uint64) {
	for {
		v := p.view.Load()
		if v.phase == node.Removed {
			h.Removed()
			return
		}

		if v.rec.KeyGen != gen || v.rec.SeedGen != seedGen {
			if err := h.Keys(v.keys[0], v.rec.Seed); err != nil {
				p.log.Error("the cluster's keys cannot be taken", "error", err)
			} else {
				if v.rec.KeyGen != gen && p.cfg.PlainPeers {
					p.tellRotation()
				}
				gen, seedGen = v.rec.KeyGen, v.rec.SeedGen
			}
		}

		select {
		case <-p.viewChanged:
		case <-p.ctx.Done():
			return
		}
	}
}

// ID returns the name of this master in the cluster.
func (p *Pool) ID() string { return p.cfg.ID }

// Identity returns the cluster's key pair. Minions know its public key.
func (p *Pool) Identity() auth.Identity { return p.identity }

// ClusterKey returns the AES key that seals publishes now.
func (p *Pool) ClusterKey() crypt.Key { return p.view.Load().keys[0] }

// Seed returns the seed of the minions' session keys, in hexadecimal.
func (p *Pool) Seed() string { return p.view.Load().rec.Seed }

// Serving reports whether this master may serve minions.
func (p *Pool) Serving() bool { return p.view.Load().phase == node.Active }

// Own reports whether this master is the owner: the only master that may do work that must not be
// done twice at a time. It also returns the owner's fencing token. The caller must call Own again
// before each action.
func (p *Pool) Own() (fence uint64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.node.Own(p.cfg.Now())
}

// Close leaves the cluster; peers notice it at once. It waits for all goroutines.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.stop()
	_ = p.listener.Close()
	p.wg.Wait()
}

func (p *Pool) tickLoop() {
	t := time.NewTicker(200 * time.Millisecond)
	defer t.Stop()
	for {
		var gone map[string]time.Time
		var lost []lostJobs
		p.mu.Lock()
		if !p.closed {
			p.perform(p.node.Tick(p.cfg.Now()))
			gone = p.findGonePeers(p.cfg.Now())
			lost = p.findLost(p.cfg.Now())
		}
		p.mu.Unlock()

		p.reportLost(gone)
		p.tellLost(lost)
		select {
		case <-t.C:
		case <-p.ctx.Done():
			return
		}
	}
}

func (p *Pool) stepNode(in node.Input) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.perform(p.node.Step(p.cfg.Now(), in))
	}
}

// command passes a command to the node and waits for the result.
func (p *Pool) command(ctx context.Context, c node.Command) error {
	done := make(chan error, 1)
	p.mu.Lock()
	p.lastCmd++
	c.ID = p.lastCmd
	p.commands[c.ID] = done

	if !p.closed {
		p.perform(p.node.Step(p.cfg.Now(), c))
	}
	p.mu.Unlock()

	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		p.mu.Lock()
		delete(p.commands, c.ID)
		p.mu.Unlock()
		return ctx.Err()
	case <-p.ctx.Done():
		return node.ErrInactive
	}
}

// Rotate replaces the cluster AES key. It returns once the record holds the new key; the peers
// learn the key a moment later.
func (p *Pool) Rotate(ctx context.Context) error {
	return p.command(ctx, node.Command{Rotate: true})
}

// Remove removes a master from the cluster for good. The same change of the record replaces the
// cluster's key, the secret and the seed of the minions' session keys.
func (p *Pool) Remove(ctx context.Context, r control.Removal) error {
	r.ID = strings.TrimSuffix(r.ID, "_master")
	return p.command(ctx, node.Command{Remove: r})
}

// Secret returns the secret that a new master must present to join. It differs from the option
// cluster_secret after a master was removed.
func (p *Pool) Secret() string {
	if s := p.view.Load().rec.Secret; s != "" {
		return s
	}
	return p.cfg.Secret
}

// StageSecret creates the next secret. From then on masters may join with the present or the next
// secret. If there is a next secret already, StageSecret does nothing.
func (p *Pool) StageSecret(ctx context.Context) error {
	return p.command(ctx, node.Command{Stage: true})
}

// CommitSecret replaces the present secret by the next secret. finger is the fingerprint of the
// next secret.
func (p *Pool) CommitSecret(ctx context.Context, finger string) error {
	return p.command(ctx, node.Command{Commit: finger})
}

func (p *Pool) masterKey() *rsa.PrivateKey { return p.cfg.Key }
