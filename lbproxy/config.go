package lbproxy

import (
	"net/netip"
	"time"
)

// Mode says which of a master's ports a frontend serves.
type Mode string

// The modes. Publish connections are held for days and carry published jobs
// downwards; request connections carry one request at a time. API is Salt's API over
// HTTP, as a rule in TLS, of which the proxy sees bytes only.
const (
	Publish Mode = "publish"
	Request Mode = "request"
	API     Mode = "api"
)

// Balance names a way to choose a backend.
type Balance string

// leastConn takes the backend with the fewest sessions for its weight, round
// robin among equals. RoundRobin deals connections out in turn by weight. bySource
// gives a source (an IPv4 address, an IPv6 /64) the same backend as long as that is
// up; when one goes, only its sources get another.
const (
	leastConn  Balance = "leastconn"
	roundRobin Balance = "roundrobin"
	bySource   Balance = "source"
)

// Check names how far a health check goes.
type Check string

// The checks, each including the one before it. Exchange is apart from them: it
// sends Health.Send and expects Health.Expect, for backends that are not Salt.
const (
	CheckTCP      Check = "tcp"      // the port accepts
	CheckReady    Check = "ready"    // ZMTP greeting and READY come back
	CheckPing     Check = "ping"     // on request ports also Salt's ping
	CheckExchange Check = "exchange" // bytes out, bytes back
)

// Config is the whole configuration of a proxy. [LoadConfig] reads it from
// YAML or JSON; a program may also fill it and call [Config.Validate], which
// sets defaults. Zero means the default unless a field says otherwise.
type Config struct {
	// Frontends are the ports minions connect to. At least one.
	Frontends []Frontend `yaml:"frontends" json:"frontends"`
	// Backends are the masters. May be empty at start: they can be added live.
	Backends  []Backend `yaml:"backends" json:"backends"`
	Limits    Limits    `yaml:"limits" json:"limits"`
	Connect   Connect   `yaml:"connect" json:"connect"`
	Health    Health    `yaml:"health" json:"health"`
	Rebalance Rebalance `yaml:"rebalance" json:"rebalance"`
	Move      Move      `yaml:"move" json:"move"`
	Keepalive Keepalive `yaml:"keepalive" json:"keepalive"`
	Log       Log       `yaml:"log" json:"log"`
	Admin     Admin     `yaml:"admin" json:"admin"`
	// Loops is the number of event loops to begin with (default 1) and MaxLoops
	// the most that are started when a loop stays more than 60 % busy for 10 s
	// (default: the number of processors, at most 4).
	Loops    int `yaml:"loops" json:"loops"`
	MaxLoops int `yaml:"max_loops" json:"max_loops"`
	// Stop is how long Run waits for sessions after its context ends: requests
	// may finish, publish sessions are cut spread over this time (default 5s).
	Stop time.Duration `yaml:"stop" json:"stop"`
}

// Frontend is one service with one or more listening addresses.
type Frontend struct {
	// Name is used in logs and metrics; unique, [a-z0-9_-].
	Name string `yaml:"name" json:"name"`
	// Mode is "publish", "request" or "api"; it chooses the backend port and the rules.
	Mode Mode `yaml:"mode" json:"mode"`
	// Bind is a list of IP:port. IPv6 sockets take IPv6 only, so "0.0.0.0:4505"
	// and "[::]:4505" go together.
	Bind []string `yaml:"bind" json:"bind"`
	// Balance is leastconn (default), roundrobin or source.
	Balance Balance `yaml:"balance" json:"balance"`
	// Idle cuts a request session after this long without a byte while no
	// request is outstanding (default 1h, -1s for never). Refused in publish
	// mode: a quiet minion is not a dead one (salt issues 66888, 66978).
	Idle time.Duration `yaml:"idle" json:"idle"`
	// Outstanding is the limit of silence while a request is outstanding
	// (default 15m, -1s for never). In api mode neither it nor Idle has a default:
	// the server knows which answers last for hours.
	Outstanding time.Duration `yaml:"outstanding" json:"outstanding"`
	// HalfClosed is the limit of silence after one side has ended its stream
	// (default 5m).
	HalfClosed time.Duration `yaml:"half_closed" json:"half_closed"`
	// Stall cuts a session whose client takes no byte for this long although
	// bytes wait for it (default 60s).
	Stall time.Duration `yaml:"stall" json:"stall"`
	// Allow and Deny are lists of CIDR. A denied source is refused; with a
	// non-empty Allow anything outside of it is refused as well.
	Allow []netip.Prefix `yaml:"allow" json:"allow"`
	Deny  []netip.Prefix `yaml:"deny" json:"deny"`
	// ProxyFrom lists balancers whose connections begin with a PROXY v2 header.
	// From all others such a header is not interpreted.
	ProxyFrom []netip.Prefix `yaml:"proxy_from" json:"proxy_from"`
	// ProxyV2 begins each connection to a backend with a PROXY v2 header, whatever
	// the backend's own proxy_v2 says.
	ProxyV2 bool `yaml:"proxy_v2" json:"proxy_v2"`
	// MaxSessions limits this frontend (default 0: only the descriptor budget).
	MaxSessions int `yaml:"max_sessions" json:"max_sessions"`
	// MaxPerSource limits sessions per IPv4 address or IPv6 /64 (-1 for no limit).
	// A number holds for every source. The default, 0, adapts: 20000 for a source
	// of which nothing is known, ten times that for one whose minions a master
	// has accepted, no limit for this machine, and for all that are not known
	// together three fourths of the descriptors.
	MaxPerSource int `yaml:"max_per_source" json:"max_per_source"`
	// Rate is the number of new connections a second per IPv4 address or IPv6
	// /64 (-1 for no limit), Burst the size of the bucket (default 10 x Rate). The
	// default, 0, adapts like that of MaxPerSource: 500 and a burst of 10000.
	// When only one of the two is given the other one is no limit.
	Rate  float64 `yaml:"rate" json:"rate"`
	Burst float64 `yaml:"burst" json:"burst"`
}

// Backend is one master.
type Backend struct {
	// Name is used in logs, metrics and the admin API; unique.
	Name string `yaml:"name" json:"name"`
	// Address is an IP address (no names: peers come from the cluster's table).
	Address string `yaml:"address" json:"address"`
	// Weight is the share of new sessions, 1 to 1000 (default 100).
	Weight int `yaml:"weight" json:"weight"`
	// PublishPort, RequestPort and APIPort default to 4505, 4506 and 8000.
	PublishPort int `yaml:"publish_port" json:"publish_port"`
	RequestPort int `yaml:"request_port" json:"request_port"`
	APIPort     int `yaml:"api_port" json:"api_port"`
	// ProxyV2 sends a PROXY v2 header with the client's address first. The
	// master must be configured to expect it from this proxy's address.
	ProxyV2 bool `yaml:"proxy_v2" json:"proxy_v2"`
	// MaxSessions limits sessions per port of this backend (default 0: none).
	MaxSessions int `yaml:"max_sessions" json:"max_sessions"`
}

// Limits bounds what the proxy may hold.
type Limits struct {
	// Descriptors is the budget of file descriptors (default: the hard limit of
	// the process, to which the soft one is raised).
	Descriptors int `yaml:"descriptors" json:"descriptors"`
	// Pending bounds the bytes that wait in the proxy for slow peers, per loop
	// (default 64 MiB, at least 512 KiB). Above it bytes are left in the kernel.
	Pending int64 `yaml:"pending" json:"pending"`
	// Backlog of the listening sockets (default 4096).
	Backlog int `yaml:"backlog" json:"backlog"`
}

// Connect tunes how backends are dialled.
type Connect struct {
	// Timeout for the whole of finding a backend (default 2s).
	Timeout time.Duration `yaml:"timeout" json:"timeout"`
	// Hedge is how long one backend may stay silent before another is dialled
	// as well; the first to answer wins (default 250ms, -1s for never).
	Hedge time.Duration `yaml:"hedge" json:"hedge"`
	// Header is how long a PROXY v2 header may take to arrive (default 3s).
	Header time.Duration `yaml:"header" json:"header"`
	// Handshake is how long a client may take to send its ZMTP greeting (default
	// 30s, -1s for ever). Unproven ends a session that is silent for so long
	// while no minion behind its source was ever accepted by a master (default
	// 5m, -1s for never), or that is there for twelve times as long. Both have no
	// default for backends that are not checked as Salt's.
	Handshake time.Duration `yaml:"handshake" json:"handshake"`
	Unproven  time.Duration `yaml:"unproven" json:"unproven"`
}

// Health tunes the checks; the words are HAProxy's.
type Health struct {
	// Check is tcp, ready, ping (default) or exchange. In api mode ready and ping
	// ask for /readyz, in TLS if that is spoken.
	Check Check `yaml:"check" json:"check"`
	// Inter between checks of a backend that is well (default 1s), FastInter
	// while it changes (default 250ms), DownInter while it is down (default 1s).
	Inter     time.Duration `yaml:"inter" json:"inter"`
	FastInter time.Duration `yaml:"fastinter" json:"fastinter"`
	DownInter time.Duration `yaml:"downinter" json:"downinter"`
	// Rise and Fall are how many results in a row change the state (default 2).
	Rise int `yaml:"rise" json:"rise"`
	Fall int `yaml:"fall" json:"fall"`
	// Timeout is the least limit of one check (default 1s); a backend whose
	// checks are slow gets four times their smoothed time, at most 5 x Timeout.
	Timeout time.Duration `yaml:"timeout" json:"timeout"`
	// Silence: while checks of a backend time out, a session that got bytes
	// from it within this time is kept (default 30s; ZMTP heartbeats come each 10s).
	Silence time.Duration `yaml:"silence" json:"silence"`
	// SlowStart is the ramp from a tenth to the full weight of a backend that
	// came up (default 20s, -1s for none).
	SlowStart time.Duration `yaml:"slow_start" json:"slow_start"`
	// KeepSessions leaves sessions alone when their backend goes down.
	KeepSessions bool `yaml:"keep_sessions" json:"keep_sessions"`
	// Send and Expect are the texts of the exchange check.
	Send   string `yaml:"send" json:"send"`
	Expect string `yaml:"expect" json:"expect"`
}

// Rebalance tunes moving publish sessions to a backend that joined or returned.
type Rebalance struct {
	// Off turns it off.
	Off bool `yaml:"off" json:"off"`
	// Delay a backend must have been up before sessions are moved (default 5s).
	Delay time.Duration `yaml:"delay" json:"delay"`
	// Excess above its share at which a backend is relieved (default 0.10).
	Excess float64 `yaml:"excess" json:"excess"`
	// Rate is the part of all sessions cut per second (default 0.01, at least
	// one). Drain uses it as well.
	Rate float64 `yaml:"rate" json:"rate"`
	// Quiet is how long a session must have carried no message to be cut
	// (default 1s); it is never cut inside a ZMTP frame.
	Quiet time.Duration `yaml:"quiet" json:"quiet"`
}

// Move tunes how sessions go on at another backend when theirs is lost, drained
// or has more than its share, without their clients noticing.
type Move struct {
	// Off turns it off: such sessions are cut, and clients connect again.
	Off bool `yaml:"off" json:"off"`
	// Request bounds the bytes of one request that are kept until its answer has
	// come (default 1 MiB), Total those of all (default 64 MiB). A session whose
	// request was not kept cannot be moved until it has its answer.
	Request int   `yaml:"request" json:"request"`
	Total   int64 `yaml:"total" json:"total"`
}

// Keepalive sets TCP keepalive and user timeout on both sides of a session.
type Keepalive struct {
	Idle        time.Duration `yaml:"idle" json:"idle"`                 // default 60s
	Interval    time.Duration `yaml:"interval" json:"interval"`         // default 15s
	Count       int           `yaml:"count" json:"count"`               // default 3
	UserTimeout time.Duration `yaml:"user_timeout" json:"user_timeout"` // default 90s
}

// Log chooses which session lines are written: "all" (default), "publish",
// "none". A publish session is logged when it opens and when it closes, a
// request session when it closes.
type Log struct {
	Sessions string `yaml:"sessions" json:"sessions"`
}

// Admin is the local control socket.
type Admin struct {
	// Socket is the path of the unix socket (default "": none).
	Socket string `yaml:"socket" json:"socket"`
	// Mode of the socket file (default 0600).
	Mode uint32 `yaml:"mode" json:"mode"`
	// UIDs that may use it besides root and the proxy's own user.
	UIDs []int `yaml:"uids" json:"uids"`
	// Metrics is an optional IP:port for Prometheus; /metrics is always served
	// on the socket too. Loopback only unless MetricsPublic.
	Metrics       string `yaml:"metrics" json:"metrics"`
	MetricsPublic bool   `yaml:"metrics_public" json:"metrics_public"`
	// Handover is the path of the unix socket on which a newer process asks for
	// the listening sockets (default "": none); see [takeOver].
	Handover string `yaml:"handover" json:"handover"`
}
