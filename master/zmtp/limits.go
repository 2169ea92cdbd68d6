package zmtp

import (
	"net/netip"
	"time"
)

// Limits bounds the resources that the peers of one listener can use. In each field, the zero value
// means the default.
type Limits struct {
	// MaxMessage is the size in bytes of the largest message, all frames together. Default 64 MiB
	// for a Router and 4 KiB for a Pub, whose subscribers send nothing but subscriptions.
	MaxMessage int
	// MaxInflight bounds the memory in bytes of all messages over 4 KiB of authenticated peers that
	// are being received, handled or answered. It counts the bytes that have arrived, not those
	// announced. One source may use at most 8 times the memory that is left; the listener closes a
	// connection that needs more. Default 4 × MaxMessage.
	MaxInflight int64
	// MaxStrange bounds the memory of such messages of unauthenticated peers. One source may use at
	// most twice the memory that is left. Default 3/2 × MaxMessage.
	MaxStrange int64
	// MaxFrames is the greatest number of frames in a message. Default 16.
	MaxFrames int
	// Handshake is the longest time from accept to READY. Default 5 s.
	Handshake time.Duration
	// MessageTime is how long a message may pause before the listener closes the connection.
	// Default 30 s. The listener also closes the connection if the message is slower than MinRate.
	MessageTime time.Duration
	// MinRate is the least average rate of a message in bytes per second, measured after the
	// message's first MessageTime. Default 4096.
	MinRate int
	// MaxConns bounds all connections of the listener, including those in handshake; the listener
	// closes further ones at once. Unauthenticated peers share three quarters of these slots. One
	// source may hold only as many of these shared slots as remain free. Default 65536.
	MaxConns int
	// ProveIn is the time after which the Router closes an idle connection whose peer has not
	// authenticated. Default 0: never.
	ProveIn time.Duration
	// MaxPerSource bounds the connections of one address (the one in the PROXY header, if any).
	// Default 0: no bound, since many minions may share the address of a NAT gateway. Connections
	// from ProxyFrom addresses without a PROXY header, such as health checks, do not count.
	MaxPerSource int
}

func (l Limits) withDefaults(maxMessage int) Limits {
	setDefault(&l.MaxMessage, maxMessage)
	setDefault(&l.MaxInflight, 4*int64(l.MaxMessage))
	setDefault(&l.MaxStrange, int64(l.MaxMessage)*3/2)
	setDefault(&l.MaxFrames, 16)
	setDefault(&l.Handshake, 5*time.Second)
	setDefault(&l.MessageTime, 30*time.Second)
	setDefault(&l.MinRate, 4096)
	setDefault(&l.MaxConns, 65536)
	return l
}

// Heartbeat configures the detection of vanished peers. The zero value means the values of salt's
// transport/zeromq.py (_set_zmq_heartbeat): PING every 10 s with a TTL of 0, close after 30 s of
// silence. Peers that announce ZMTP 3.0 do not know PING; for them only TCP keep-alive works.
type Heartbeat struct {
	// Interval is the time between PINGs; negative switches heartbeats off.
	Interval time.Duration
	// Timeout is the silence after which the connection of a peer is closed.
	Timeout time.Duration
	// TTL, at most 65 s, is sent to the peer with each PING. If libzmq then receives nothing for
	// that time, it closes the connection to the master and reconnects. An unmodified minion has no
	// other way to notice early that the host of its master has vanished. Default 0: the peer does
	// not check.
	TTL time.Duration
}

func (h Heartbeat) withDefaults() Heartbeat {
	setDefault(&h.Interval, 10*time.Second)
	setDefault(&h.Timeout, 30*time.Second)
	// libzmq stores the time in 16 bits of milliseconds (zmtp_engine.cpp).
	h.TTL = min(max(h.TTL, 0), 65*time.Second)
	return h
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// Peer names the other end of a connection.
type Peer struct {
	// ID is unique among all connections of the listener, and never reused.
	ID uint64
	// Remote is the peer's address. It is the source in the PROXY header if there is one, otherwise
	// the address of the TCP connection, and the zero value on a Unix socket.
	Remote netip.AddrPort
	// Via is the address of the proxy that sent the PROXY header, or the zero value without such a
	// header.
	Via netip.Addr
	// Missing is set if the load balancer of this cluster moved the connection here from another
	// master: the time when the load balancer last received something from that master. Messages
	// that the other master sent after that may be lost. For any other connection, Missing is the
	// zero value.
	Missing time.Time
	// Began is set for a connection with Missing. It is the time when the client connected to the
	// proxy, or a time long ago if the proxy does not report it.
	Began time.Time
	// Answered is set for a subscriber that gets PINGs with a TTL, otherwise it is the zero value.
	// It is the time at which the last answered PING was created, or the time of the connection
	// before the first answer. Everything published before that time has reached the subscriber.
	Answered time.Time
	// SocketType is the socket type that the peer announced: REQ, DEALER, SUB, …
	SocketType string
	// Identity is the routing id that the peer asked for. It is not verified, and several peers may
	// have the same one. Use it only in logs, quoted.
	Identity string
	// Account limits the connection's use of the listener's memory. It is nil on a Pub.
	Account *Account
}
