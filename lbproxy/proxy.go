package lbproxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"saltern/internal/localsock"
	"saltern/internal/rpc"
)

// Errors of methods that change a running proxy.
var (
	errNoBackend  = &rpc.Kind{Code: rpc.CodeNotFound, Text: "no such backend"}
	errNoFrontend = &rpc.Kind{Code: rpc.CodeNotFound, Text: "no such frontend"}
	errExists     = &rpc.Kind{Code: rpc.CodeState, Text: "backend exists already"}
	errStopped    = errors.New("the load balancer has stopped")
)

// Proxy is a proxy, running or not. Its methods are safe for concurrent use, but Run may be called
// only once.
type Proxy struct {
	cfg        Config
	log        *slog.Logger
	sessionLog *sessionLog
	base       time.Time
	kernel     kernel
	dialer     func(ctx context.Context, addr string) (net.Conn, error)
	tick       time.Duration // interval of sweeps and of the manager
	budget     budget
	known      *knownSources
	counters   counters
	frontends  []*frontend

	loops   atomic.Pointer[[]*loop]
	state   atomic.Int32
	ready   chan struct{} // closed when listening
	retire  chan struct{} // closed by a hand-over
	spareMu sync.Mutex
	// spare descriptor: if none is left, it is closed, so that a connection can be accepted and
	// refused
	spareFD int

	mu           sync.Mutex
	backends     []*backend
	checkers     map[*member]*runningCheck
	inheritedFDs []int
	inherits     bool // whether listeners were inherited, so that the admin sockets are also taken over
	listeners    []*listener
	unopened     []*listener           // listeners of the API that are not open yet; only the manager uses them
	metrics      net.Listener          // listens on Admin.Metrics; may be nil
	adminSockets []*localsock.Listener // set before Run serves them; a hand-over leaves their paths to the successor
	wg           sync.WaitGroup        // counts the goroutines of checkers and loops
	ctx          context.Context
	retired      bool
}

type runningCheck struct {
	*checker
	cancel context.CancelFunc
}

type counters struct {
	hedges, loopFaults, rebalanced atomic.Uint64
	transferred                    atomic.Uint64 // number of sessions moved to another backend
	requestsNotKept                atomic.Uint64 // number of requests that were too large to keep
	keptBytes                      atomic.Int64  // number of bytes of the requests that are kept now
}

const (
	stateNew = iota
	stateRunning
	stateStopped
)

// New prepares a proxy. It opens nothing before Run. It validates cfg and sets the defaults.
func New(cfg Config, log *slog.Logger) (*Proxy, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("load balancer's configuration: %w", err)
	}

	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	p := &Proxy{
		cfg:      cfg,
		log:      log,
		base:     time.Now(),
		kernel:   linux{},
		tick:     time.Second,
		spareFD:  -1,
		ready:    make(chan struct{}),
		retire:   make(chan struct{}),
		checkers: map[*member]*runningCheck{},
	}

	p.known = newKnown()
	var d net.Dialer
	p.dialer = func(ctx context.Context, addr string) (net.Conn, error) { return d.DialContext(ctx, "tcp", addr) }
	p.sessionLog = newSessionLog(log, p.base, cfg.Log.Sessions)

	for _, f := range cfg.Frontends {
		p.frontends = append(p.frontends,
			&frontend{proxy: p, cfg: f, mode: f.Mode, sources: newSources(&f, cfg.Health.checksSalt())})
	}

	for _, b := range cfg.Backends {
		if err := p.AddBackend(b); err != nil {
			return nil, err
		}
	}

	none := []*loop{}
	p.loops.Store(&none)
	return p, nil
}

// Run listens and serves until ctx ends. Then it waits for requests to finish, cuts publish
// sessions spread over Config.Stop, and returns when all its goroutines have ended. It also returns
// when [takeOver] has moved the listeners to another process and the remaining sessions have ended.
func (p *Proxy) Run(ctx context.Context) error {
	if !p.state.CompareAndSwap(stateNew, stateRunning) {
		return errors.New("run the load balancer: it ran before")
	}
	defer p.state.Store(stateStopped)

	defer p.closeSpare()
	p.setBudget()
	if err := p.openListeners(); err != nil {
		p.closeListeners()
		return err
	}

	side, stopSide := context.WithCancel(context.WithoutCancel(ctx))
	var sides sync.WaitGroup
	defer sides.Wait()

	defer stopSide()
	sides.Go(func() { p.sessionLog.run(side) })
	watch := p.watchAddresses()
	sides.Go(func() { watch(side) })
	closers, err := p.startAdmin(side, &sides)
	if err != nil {
		p.closeListeners()
		return err
	}
	defer closers()

	faults := make(chan error, 64)
	if err := p.startLoops(faults); err != nil {
		p.closeListeners()
		p.stopLoops()
		return err
	}

	checks, stopChecks := context.WithCancel(side)
	p.startCheckers(checks)
	close(p.ready)
	for _, ln := range p.listeners {
		p.log.Info("listening", "frontend", ln.frontend.cfg.Name, "addr", ln.addr.String())
	}

	err = p.manage(ctx, faults)
	p.mu.Lock()
	p.retired = true
	p.mu.Unlock()

	first := p.allLoops()[0]
	first.runAndWait(first.unlisten)
	if p.metrics != nil {
		_ = p.metrics.Close() // the new process waits for the address
	}

	if err == nil {
		p.windDown(ctx)
	}

	stopChecks()
	p.stopLoops()
	return err
}

// startLoops starts the event loops and makes the first one accept connections.
func (p *Proxy) startLoops(faults chan<- error) error {
	for range p.cfg.Loops {
		if err := p.addLoop(faults); err != nil {
			return err
		}
	}

	first := p.allLoops()[0]
	var err error
	first.runAndWait(func() {
		for _, ln := range p.listeners {
			err = errors.Join(err, first.listen(ln))
		}
	})

	if err != nil {
		return fmt.Errorf("watch listeners: %w", err)
	}

	return nil
}

// Ready is closed when the proxy listens.
func (p *Proxy) Ready() <-chan struct{} { return p.ready }

func (p *Proxy) allLoops() []*loop { return *p.loops.Load() }

// addLoop starts another loop. Only Run and the manager call it.
func (p *Proxy) addLoop(faults chan<- error) error {
	old := p.allLoops()
	l, err := newLoop(p, len(old))
	if err != nil {
		return fmt.Errorf("start event loop: %w", err)
	}

	now := append(append([]*loop{}, old...), l)
	linger := time.Duration(0)
	if mayLinger(len(now)) {
		linger = lingerFor
	}

	l.gate.linger = linger
	for _, o := range old {
		o.runLater(func() { o.gate.linger = linger })
	}

	p.loops.Store(&now)
	p.wg.Go(func() {
		if err := l.run(); err != nil {
			p.counters.loopFaults.Add(1)
			select {
			case faults <- err:
			default:
			}
		}
	})

	return nil
}

func (p *Proxy) stopLoops() {
	for _, l := range p.allLoops() {
		l.runLater(func() { l.stopping = true })
	}
	p.mu.Lock()
	for _, w := range p.checkers {
		w.cancel()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

// leastLoaded returns the loop for a new session. l is the loop that accepted the session.
func (p *Proxy) leastLoaded(l *loop) *loop {
	all := p.allLoops()
	if len(all) == 1 {
		return l
	}
	best := l
	for _, o := range all {
		if o.sessions.Load() < best.sessions.Load() {
			best = o
		}
	}
	return best
}

// setBudget raises the process's limit of descriptors as far as allowed, and opens the spare descriptor.
func (p *Proxy) setBudget() {
	var lim unix.Rlimit
	size := int64(1024)
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err == nil {
		if lim.Cur < lim.Max {
			lim.Cur = lim.Max
			if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
				p.log.Warn("raise descriptor limit", "error", err)
				_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &lim)
			}
		}

		size = int64(min(lim.Cur, 1<<30))
	}

	if d := int64(p.cfg.Limits.Descriptors); d > 0 {
		size = min(size, d)
	}

	p.budget.setSize(max(size-reservedFDs, 2))
	p.openSpare()
}

func (p *Proxy) openSpare() {
	p.spareMu.Lock()
	defer p.spareMu.Unlock()
	if p.spareFD < 0 {
		if fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
			p.spareFD = fd
		}
	}
}

func (p *Proxy) closeSpare() {
	p.spareMu.Lock()
	defer p.spareMu.Unlock()
	if p.spareFD >= 0 {
		unix.Close(p.spareFD)
		p.spareFD = -1
	}
}

// refuseOne accepts a connection of the listener ln with the spare descriptor and closes it. It
// returns false if it could not accept one.
func (p *Proxy) refuseOne(ln int) bool {
	p.closeSpare()
	defer p.openSpare()
	fd, _, e := p.kernel.accept(ln)
	if e != 0 {
		return false
	}
	unix.Close(fd)
	return true
}

// logFault logs a fault of this process, at most once a second for each kind. It does not block a
// loop: the log's own goroutine writes the line.
func (p *Proxy) logFault(action string, err error) { p.sessionLog.queueFault(action, err) }

// Inherit passes the listening sockets of an earlier process to the proxy. Run uses those that are
// bound to a configured address, and closes the others. The caller calls Inherit before Run.
// Inherit closes the files and keeps duplicates of their descriptors.
func (p *Proxy) Inherit(files []*os.File) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs error
	for _, f := range files {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			errs = errors.Join(errs, fmt.Errorf("inherit %s: %w", f.Name(), err))
		} else {
			p.inheritedFDs = append(p.inheritedFDs, fd)
			p.inherits = true
		}

		f.Close()
	}

	return errs
}

// Listeners returns duplicates of the listening sockets, to hand them over. The caller closes them.
// It returns none before Run listens.
func (p *Proxy) Listeners() ([]*os.File, error) {
	select {
	case <-p.ready:
	default:
		return nil, nil
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	if p.retired {
		return nil, errStopped
	}

	var files []*os.File
	for _, ln := range p.listeners {
		fd, err := unix.FcntlInt(uintptr(ln.fd), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			for _, f := range files {
				f.Close()
			}
			return nil, fmt.Errorf("duplicate listener %s: %w", ln.addr, err)
		}

		files = append(files, os.NewFile(uintptr(fd), ln.addr.String()))
	}

	return files, nil
}

func (p *Proxy) openListeners() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	have := map[netip.AddrPort]int{}
	for _, fd := range p.inheritedFDs {
		_ = unix.SetNonblock(fd, true)
		have[localAddr(fd)] = fd
	}

	p.inheritedFDs = nil
	var errs error
	for _, fe := range p.frontends {
		for _, s := range fe.cfg.Bind {
			ap := netip.MustParseAddrPort(s) // Validate has checked s
			fd, inherited := have[ap]
			delete(have, ap)
			var err error
			if inherited {
				err = tuneListener(fd, p.cfg.Keepalive)
			} else {
				fd, err = listenTCP(ap, p.cfg.Limits.Backlog, p.cfg.Keepalive)
			}

			if err != nil {
				if inherited {
					unix.Close(fd)
				}

				err = fmt.Errorf("frontend %s: %w", fe.cfg.Name, err)
				// minions can do without the API, so Run starts without it and tries again
				if fe.mode == API && !inherited {
					p.log.Warn("the API is not served there yet", "addr", s, "error", err)
					fe.notListening.Store(&err)
					p.unopened = append(p.unopened, &listener{frontend: fe, addr: ap})
					continue
				}

				errs = errors.Join(errs, err)
				continue
			}

			p.listeners = append(p.listeners, &listener{frontend: fe, fd: fd, addr: localAddr(fd)})
		}
	}

	for ap, fd := range have {
		p.log.Warn("inherited listener is not configured", "addr", ap.String())
		unix.Close(fd)
	}

	return errs
}

// listenAgain opens the API listeners whose addresses were in use before. Only the manager calls it.
func (p *Proxy) listenAgain() {
	first := p.allLoops()[0]
	p.unopened = slices.DeleteFunc(p.unopened, func(ln *listener) bool {
		fd, err := listenTCP(ln.addr, p.cfg.Limits.Backlog, p.cfg.Keepalive)
		if err != nil {
			ln.frontend.notListening.Store(&err)
			return false
		}

		open := &listener{frontend: ln.frontend, fd: fd, addr: localAddr(fd)}
		if !first.runAndWait(func() { err = first.listen(open) }) || err != nil {
			unix.Close(fd)
			return false
		}

		p.mu.Lock()
		p.listeners = append(p.listeners, open)
		p.mu.Unlock()

		ln.frontend.notListening.Store(nil)
		p.log.Info("listening", "frontend", ln.frontend.cfg.Name, "addr", open.addr.String())
		return true
	})
}

func (p *Proxy) closeListeners() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, ln := range p.listeners {
		unix.Close(ln.fd)
	}
	p.listeners = nil
}
