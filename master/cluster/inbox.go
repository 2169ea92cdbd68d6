package cluster

import (
	"errors"
	"maps"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"saltern/master/cluster/node"
	"saltern/master/crypt"
)

// Limits of the listener.
const (
	// connections of members; before the TLS handshake the address of a connection decides whether
	// it counts as a member's, afterwards the key does
	maxMembers    = 256
	maxStrangers  = 96
	maxPerAddress = 16
	// strangerRate is the number of messages a second that may cost RSA operations, for all senders
	// that are not members together. The limit for all members together is the same.
	strangerRate  = 30
	sourceRate    = 6         // the same limit for each address from which no member connects
	maxParked     = 256       // events of one Salt master that are parked until its session key arrives
	maxParkedSize = 8 << 20   // bytes of the parked events of one Salt master
	maxLarge      = 512 << 20 // bytes of large frames in flight from Saltern masters
	// bytes of large frames in flight from Salt's masters, which prove their identity per message only
	maxLargePlain = 128 << 20
	maxRSA        = 2
)

// inbox accepts the connections of other masters and handles what they send.
type inbox struct {
	pool *Pool

	mu         sync.Mutex
	conns      map[*conn]bool
	perAddress map[netip.Addr]int
	total      [2]int // number of connections: [0] not of members, [1] of members
	// progress holds the number of the last handled message of each duty, by peer.
	progress map[string]*dutyProgress
	parked   map[string][]parkedEvent
	// proven holds, by Salt master, the address from which that master last authenticated. The
	// address may differ from the one in the master's name.
	proven map[string]netip.Addr

	rsa  chan struct{}
	rate struct {
		sync.Mutex
		at      time.Time
		n       [2]int // messages with RSA operations in the present second: [0] not from members, [1] from members
		sources map[netip.Addr]int
	}
	large [2]atomic.Int64 // bytes in flight: [0] from Saltern's, [1] from Salt's masters
}

type parkedEvent struct {
	from netip.Addr
	tag  string
	data []byte
}

type dutyProgress struct {
	inc  string
	last [duties]uint64
	duty [duties]sync.Mutex // held while a message of the duty is handled, since a peer may have two connections
}

func newInbox(p *Pool) *inbox {
	return &inbox{
		pool:       p,
		conns:      map[*conn]bool{},
		perAddress: map[netip.Addr]int{},
		progress:   map[string]*dutyProgress{},
		parked:     map[string][]parkedEvent{},
		proven:     map[string]netip.Addr{},
		rsa:        make(chan struct{}, maxRSA),
	}
}

func (in *inbox) accept() {
	p := in.pool
	defer p.wg.Go(in.closeAll)
	for {
		c, err := p.listener.Accept()
		if err != nil {
			if p.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}

			p.log.Warn("a connection of a master cannot be accepted", "error", err)
			select {
			case <-time.After(100 * time.Millisecond):
			case <-p.ctx.Done():
			}

			continue
		}

		a, _ := netip.ParseAddrPort(c.RemoteAddr().String())
		k := &conn{Conn: c, inbox: in, address: a.Addr().Unmap()}
		if !in.addConnection(k) {
			p.count.refused.Add(1)
			_ = c.Close()
			continue
		}

		p.wg.Go(func() {
			defer in.dropConnection(k)
			k.serveConnection()
		})
	}
}

func (in *inbox) addConnection(k *conn) bool {
	known := in.memberAddress(k.address)
	in.mu.Lock()
	defer in.mu.Unlock()

	if known {
		k.class = 1
	}

	if in.total[k.class] >= [2]int{maxStrangers, maxMembers}[k.class] || in.perAddress[k.address] >= maxPerAddress ||
		in.pool.ctx.Err() != nil {
		return false
	}

	in.conns[k] = true
	in.perAddress[k.address]++
	in.total[k.class]++
	return true
}

// memberAddress reports whether an address is the name of a member or an address from which a Salt
// master has authenticated. An address authenticates nobody; it only reserves a slot for the
// connection.
func (in *inbox) memberAddress(address netip.Addr) bool {
	for _, m := range in.pool.view.Load().rec.Members {
		if a, err := netip.ParseAddr(m.ID); err == nil && a.Unmap() == address {
			return true
		}
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, a := range in.proven {
		if a == address {
			return true
		}
	}
	return false
}

// belongs counts a connection as a member's, when its other end has authenticated as a member.
// Until then the connection was counted as one of other senders.
func (in *inbox) belongs(k *conn) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.conns[k] && k.class == 0 {
		in.total[0]--
		in.total[1]++
		k.class = 1
	}
}

func (in *inbox) dropConnection(k *conn) {
	_ = k.Close()
	in.pool.tellers.forgetConnection(k)
	in.mu.Lock()
	defer in.mu.Unlock()
	delete(in.conns, k)
	in.total[k.class]--
	in.perAddress[k.address]--
	if in.perAddress[k.address] <= 0 {
		delete(in.perAddress, k.address)
	}
}

// charge takes n bytes of a large frame out of the budget of Saltern's masters or that of Salt's
// masters, and returns false if fewer bytes were left. A negative n returns bytes to the budget.
func (k *conn) charge(n int) bool {
	at, limit := &k.inbox.large[0], int64(maxLarge)
	if k.plain {
		at, limit = &k.inbox.large[1], maxLargePlain
	}
	if at.Add(int64(n)) > limit && n > 0 {
		at.Add(int64(-n))
		k.inbox.pool.count.dropped.Add(1)
		return false
	}
	return true
}

func (in *inbox) closeAll() {
	in.mu.Lock()
	defer in.mu.Unlock()
	for k := range in.conns {
		_ = k.Close()
	}
}

// review closes the connections of masters that are no longer members and deletes what it stored
// about these masters. The caller holds the pool's lock.
func (in *inbox) review() {
	v := in.pool.view.Load()
	in.mu.Lock()
	defer in.mu.Unlock()

	for k := range in.conns {
		if !k.wasMember.Load() {
			continue // the other end is not a member, or its proof has not been read yet
		}
		if _, ok := k.member(); !ok {
			_ = k.Close()
		}
	}

	maps.DeleteFunc(in.progress, func(id string, _ *dutyProgress) bool {
		_, ok := v.rec.Member(id)
		return !ok
	})

	maps.DeleteFunc(in.parked, func(id string, _ []parkedEvent) bool {
		_, ok := v.rec.Member(id)
		return !ok
	})

	maps.DeleteFunc(in.proven, func(id string, _ netip.Addr) bool {
		m, ok := v.rec.Member(id)
		return !ok || m.Own
	})
}

// rememberAddress records the address from which a Salt master has authenticated.
func (in *inbox) rememberAddress(peer string, address netip.Addr) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.proven[peer] = address
}

// fromSalt reports whether a connection without TLS may come from the Salt master m. It does not
// authenticate the sender.
func (in *inbox) fromSalt(m node.Member, address netip.Addr) bool {
	if m.Own {
		return false
	}
	if a, err := netip.ParseAddr(m.ID); err != nil || a.Unmap() == address {
		return true
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.proven[m.ID] == address
}

// member returns the member with whose key the other end has authenticated. It returns false when
// the record contains no such member.
func (k *conn) member() (node.Member, bool) {
	if k.pem == "" {
		return node.Member{}, false
	}
	m, ok := k.inbox.pool.view.Load().rec.Member(k.id)
	if !ok || crypt.NormalizePEM(m.Pub) != crypt.NormalizePEM(k.pem) {
		return node.Member{}, false
	}
	return m, true
}

func (k *conn) source() node.Source {
	s := node.Source{Addr: k.address.String()}
	if m, ok := k.member(); ok {
		s.ID = m.ID
		k.wasMember.Store(true)
	}
	return s
}
