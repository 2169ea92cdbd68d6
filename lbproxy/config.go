package lbproxy

import (
	"net/netip"
	"time"
)

// Mode says which of a master's ports a frontend serves.
type Mode string

// The modes. Publish connections stay open for days and carry published jobs to minions. Request
// connections carry one request at a time. API is Salt's API over HTTP, usually in TLS: the proxy forwards
// its bytes unread.
const (
	Publish Mode = "publish"
	Request Mode = "request"
	API     Mode = "api"
)

// Balance names a way to choose a backend.
type Balance string

// leastConn chooses the backend with the fewest sessions for its weight, and among equal backends
// the next in the list. roundRobin chooses the backends one after another, by weight. bySource
// gives a source (an IPv4 address, an IPv6 /64) the same backend while that backend is up. When a
// backend goes down, only its sources get another backend.
const (
	leastConn  Balance = "leastconn"
	roundRobin Balance = "roundrobin"
	bySource   Balance = "source"
)

// Check is a kind of health check.
type Check string

// The checks. Each of the first three includes the one before it. CheckExchange is separate: it sends
// Health.Send and expects Health.Expect, for backends that are not Salt.
const (
	CheckTCP      Check = "tcp"      // the port accepts a connection
	CheckReady    Check = "ready"    // as tcp, and the backend sends a ZMTP greeting and READY
	CheckPing     Check = "ping"     // as ready, and on request ports the master answers Salt's ping
	CheckExchange Check = "exchange" // the backend answers Send with Expect
)

// Config is the whole configuration of a proxy. [LoadConfig] reads it from
// YAML or JSON; a program may also fill it and call [Config.Validate], which
// sets defaults. Zero means the default unless a field says otherwise.
type Config struct {
	// Frontends are the ports minions connect to. At least one.
	Frontends []Frontend `yaml:"frontends" json:"frontends"`
	// Backends are the masters. Backends may be empty: the admin API can add masters later.
	Backends  []Backend `yaml:"backends" json:"backends"`
	Limits    Limits    `yaml:"limits" json:"limits"`
	Connect   Connect   `yaml:"connect" json:"connect"`
	Health    Health    `yaml:"health" json:"health"`
	Rebalance Rebalance `yaml:"rebalance" json:"rebalance"`
	Move      Move      `yaml:"move" json:"move"`
	Keepalive Keepalive `yaml:"keepalive" json:"keepalive"`
	Log       Log       `yaml:"log" json:"log"`
	Admin     Admin     `yaml:"admin" json:"admin"`
	// Loops is the number of event loops to begin with (default 1). MaxLoops is the most to which
	// the number grows while a loop is more than 60 % busy for 10 s (default: the number of
	// processors, at most 4).
	Loops    int `yaml:"loops" json:"loops"`
	MaxLoops int `yaml:"max_loops" json:"max_loops"`
	// Stop is how long Run waits for sessions after its context ends (default 5s). Requests may finish.
	// Publish sessions are cut, spread over this time.
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
	// Idle is how long a request session may receive no byte while no request is outstanding,
	// before it is cut (default 1h, -1s: never). Publish mode refuses this option, because a quiet
	// minion may be alive (salt issues 66888, 66978).
	Idle time.Duration `yaml:"idle" json:"idle"`
	// Outstanding is how long a session may receive no byte while a request is outstanding, before
	// it is cut (default 15m, -1s: never). In api mode Outstanding and Idle have no default,
	// because only the server knows which answers last for hours.
	Outstanding time.Duration `yaml:"outstanding" json:"outstanding"`
	// HalfClosed is how long a session may be silent after one side has ended its stream, before it
	// is cut (default 5m).
	HalfClosed time.Duration `yaml:"half_closed" json:"half_closed"`
	// Stall is how long a client may accept no byte although bytes wait for it, before its session
	// is cut (default 60s).
	Stall time.Duration `yaml:"stall" json:"stall"`
	// Allow and Deny are lists of CIDR. A source in Deny is refused. If Allow is not empty, a
	// source outside of Allow is also refused.
	Allow []netip.Prefix `yaml:"allow" json:"allow"`
	Deny  []netip.Prefix `yaml:"deny" json:"deny"`
	// ProxyFrom lists balancers whose connections begin with a PROXY v2 header. The header of any other
	// source is not interpreted.
	ProxyFrom []netip.Prefix `yaml:"proxy_from" json:"proxy_from"`
	// ProxyV2 begins each connection to a backend with a PROXY v2 header, even if the backend's own
	// proxy_v2 is false.
	ProxyV2 bool `yaml:"proxy_v2" json:"proxy_v2"`
	// MaxSessions limits the sessions of this frontend (default 0: only the descriptor budget
	// limits them).
	MaxSessions int `yaml:"max_sessions" json:"max_sessions"`
	// MaxPerSource limits sessions per IPv4 address or IPv6 /64 (-1 for no limit). A positive
	// number holds for every source. The default, 0, depends on the source: 20000 for an unknown
	// source, ten times that for a known source (a master has accepted minions there), and no limit
	// for this machine. All unknown sources together get three fourths of the descriptors.
	MaxPerSource int `yaml:"max_per_source" json:"max_per_source"`
	// Rate is the number of new connections a second per IPv4 address or IPv6 /64 (-1 for no
	// limit), Burst is the most that may arrive at once (default 10 x Rate). The default Rate, 0,
	// depends on the source like the default of MaxPerSource: 500 for an unknown source, with a
	// burst of 10000. If only MaxPerSource or only Rate is set, the other option sets no limit.
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
	// ProxyV2 begins each connection with a PROXY v2 header that holds the client's address. The master
	// must be configured to expect it from this proxy's address.
	ProxyV2 bool `yaml:"proxy_v2" json:"proxy_v2"`
	// MaxSessions limits sessions per port of this backend (default 0: no limit).
	MaxSessions int `yaml:"max_sessions" json:"max_sessions"`
}

// Limits bounds the descriptors and bytes of the proxy.
type Limits struct {
	// Descriptors is the budget of file descriptors (default: the hard limit of
	// the process, to which the soft one is raised).
	Descriptors int `yaml:"descriptors" json:"descriptors"`
	// Pending bounds the bytes that wait in the proxy for slow peers, per loop (default 64 MiB, at
	// least 512 KiB). Above this bound the proxy leaves bytes in the kernel.
	Pending int64 `yaml:"pending" json:"pending"`
	// Backlog is the number of connections that may wait in a listening socket's queue (default 4096).
	Backlog int `yaml:"backlog" json:"backlog"`
}

// Connect configures how backends are dialled.
type Connect struct {
	// Timeout limits the search for a backend, all dials included (default 2s).
	Timeout time.Duration `yaml:"timeout" json:"timeout"`
	// Hedge is how long a dialled backend may stay silent before the proxy also dials a second one.
	// The backend that answers first gets the session (default 250ms, -1s for never).
	Hedge time.Duration `yaml:"hedge" json:"hedge"`
	// Header is how long a PROXY v2 header may take to arrive (default 3s).
	Header time.Duration `yaml:"header" json:"header"`
	// Handshake is how long a client may take to send its ZMTP greeting (default 30s, -1s for
	// ever). Unproven is how long a session of an unknown source may be silent before it is cut
	// (default 5m, -1s for never). Such a session is also cut at an age of twelve times Unproven.
	// Both fields have a default only for backends that are checked as Salt masters.
	Handshake time.Duration `yaml:"handshake" json:"handshake"`
	Unproven  time.Duration `yaml:"unproven" json:"unproven"`
}

// Health configures the checks. The names are HAProxy's.
type Health struct {
	// Check is tcp, ready, ping (default) or exchange. In api mode ready and ping ask for /readyz, with TLS
	// if the port speaks it.
	Check Check `yaml:"check" json:"check"`
	// Inter is the time between checks of a backend that is up (default 1s), FastInter while its state is
	// about to change (default 250ms), DownInter while it is down (default 1s).
	Inter     time.Duration `yaml:"inter" json:"inter"`
	FastInter time.Duration `yaml:"fastinter" json:"fastinter"`
	DownInter time.Duration `yaml:"downinter" json:"downinter"`
	// Rise and Fall are how many equal results in a row change the state to up or down (default 2).
	Rise int `yaml:"rise" json:"rise"`
	Fall int `yaml:"fall" json:"fall"`
	// Timeout limits one check (default 1s). For a backend that answers slowly, the limit is four
	// times its smoothed answer time, between Timeout and 5 x Timeout.
	Timeout time.Duration `yaml:"timeout" json:"timeout"`
	// Silence protects sessions while checks of a backend time out: a session stays if the backend
	// sent it bytes within this time (default 30s; ZMTP heartbeats come every 10s).
	Silence time.Duration `yaml:"silence" json:"silence"`
	// SlowStart is how long the weight of a backend that came up rises, from a tenth to its full value
	// (default 20s, -1s for none).
	SlowStart time.Duration `yaml:"slow_start" json:"slow_start"`
	// KeepSessions leaves sessions alone when their backend goes down.
	KeepSessions bool `yaml:"keep_sessions" json:"keep_sessions"`
	// Send and Expect are the texts of the exchange check.
	Send   string `yaml:"send" json:"send"`
	Expect string `yaml:"expect" json:"expect"`
}

// Rebalance configures how publish sessions move to a backend that joined or returned.
type Rebalance struct {
	// Off turns rebalancing off.
	Off bool `yaml:"off" json:"off"`
	// Delay is how long a backend must have been up before sessions move to it (default 5s).
	Delay time.Duration `yaml:"delay" json:"delay"`
	// Excess is how far above its share of the sessions a backend must be before sessions move away
	// from it, as a part of the share (default 0.10).
	Excess float64 `yaml:"excess" json:"excess"`
	// Rate is the part of all sessions that is cut per second (default 0.01, at least one session).
	// Draining uses the same rate.
	Rate float64 `yaml:"rate" json:"rate"`
	// Quiet is how long a session must have carried no bytes before it may be cut (default 1s). A session
	// is never cut inside a ZMTP frame.
	Quiet time.Duration `yaml:"quiet" json:"quiet"`
}

// Move configures how sessions continue at another backend without their client noticing, when
// their backend is lost, drained or above its share.
type Move struct {
	// Off cuts such sessions instead of moving them: their clients connect again.
	Off bool `yaml:"off" json:"off"`
	// Request bounds the bytes that the proxy keeps of one request until its answer has come
	// (default 1 MiB). Total bounds the bytes of all kept requests (default 64 MiB). A session
	// whose request was not kept cannot move until the answer has come.
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
	// UIDs are the users that may use the socket besides root and the proxy's own user.
	UIDs []int `yaml:"uids" json:"uids"`
	// Metrics is the IP:port for Prometheus, loopback only unless MetricsPublic is set (default "":
	// none). The admin socket always serves /metrics.
	Metrics       string `yaml:"metrics" json:"metrics"`
	MetricsPublic bool   `yaml:"metrics_public" json:"metrics_public"`
	// Handover is the path of the unix socket on which a newer process asks for
	// the listening sockets (default "": none); see [takeOver].
	Handover string `yaml:"handover" json:"handover"`
}
