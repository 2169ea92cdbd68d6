package nodeapi

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"saltern/internal/audit"
	"saltern/internal/control"
	"saltern/internal/control/toolrun"
	"saltern/internal/httpserver"
	"saltern/internal/ratelimit"
	"saltern/supervisor/history"
	"saltern/supervisor/keyuse"
	"saltern/supervisor/marks"
	"saltern/supervisor/nodeapi/internal/spake2"
	"saltern/supervisor/nodes"
	"saltern/supervisor/options"
	"saltern/supervisor/status"
	"saltern/supervisor/upgrade/rollout"
)

// Host is what the node API needs from the node that it serves. All methods may be called
// concurrently.
type Host interface {
	// Table returns the table of nodes.
	Table() nodes.Table
	// Secrets and ClusterKey return the data with which this node authenticates the cluster. An
	// error says why it cannot do so now ("the shared storage is not there yet"). The first secret
	// is the present one; a second one is the next secret, which is valid too.
	Secrets() ([]string, error)
	ClusterKey() (*ClusterKey, error)
	Storage() Storage
	Summary() Summary
	// Marks returns the marks of this node's disks, and the marks that it remembers of other nodes.
	// asker is the hash of the asking member's certificate.
	Marks(asker string) marks.Report
	// Used records that a machine at the address source made a request with the key of the node n,
	// and how the machine described itself. It returns why that machine may not act for n, or "" if
	// it may.
	Used(n nodes.Node, s keyuse.Speaker, source string) (refusal string)
	// Offer accepts the table of another member if it is newer.
	Offer(t nodes.Table) error
	// LookForTable starts a look for a newer table on the shared storage, and does not wait for it.
	LookForTable()
	// Admit adds a machine that has authenticated with the secret to the table, in the state
	// joining. Calls may be repeated. It may return ErrName, ErrRole or ErrRemoved.
	Admit(ctx context.Context, n nodes.Node) (nodes.Table, error)
	// SetState changes the state of the asking node, name, in the table, and returns the new table.
	SetState(ctx context.Context, name string, s nodes.State) (nodes.Table, error)
	// StorageAuthority returns the authority of the shared volume's certificates.
	StorageAuthority() (Authority, error)
	// SignStorage signs a node's request (PKCS #10, PEM) for its certificate with that authority.
	SignStorage(request []byte, node string) (Certificate, error)
	// Minions returns the minions that our own master knows. If finger is set, it includes their
	// keys' fingerprints.
	Minions(ctx context.Context, finger bool) (status.MinionView, error)
	// Git returns the git remotes of our own master. If fetch is set, the master first fetches the
	// remote with that URL or name, or all remotes for "". If there is no such remote, Git returns
	// an empty view and no error.
	Git(ctx context.Context, fetch bool, remote string) (status.GitView, error)
	// Audit returns the audit records of this node.
	Audit(ctx context.Context, q audit.Query) (audit.Page, error)
	// Events returns the events that this node saw.
	Events(q history.Query) ([]history.Event, error)
	// Points returns the metrics of this node in the last day.
	Points() []control.Point
	// Newest updates the files from which this node's master serves.
	Newest(ctx context.Context) control.Newest
	// RestartService restarts a service of this node, soon after it has returned.
	RestartService(name string) error
	// Record writes an audit record of an action through this API.
	Record(r audit.Record)
	// Options returns our own master as a target for changes of options.
	Options() options.Node
	// System returns the system of this machine, for upgrades.
	System() rollout.Node
	// Tool prepares a run of one of Salt's tools by our own master, on behalf of another node. If
	// it returns no error, the caller must call run once. run writes frames until the tool or ctx
	// ends.
	Tool(ctx context.Context, r toolrun.Request) (run func(context.Context, io.Writer), err error)
}

// Server answers on the node port.
type Server struct {
	host    Host
	id      *Identity
	version string
	log     *slog.Logger
	now     func() time.Time
	limit   *limiter

	mu      sync.Mutex
	stretch map[string]spake2.Secret // valid secrets in stretched form, by their text
	told    map[string]time.Time     // when each warning was last logged, see warnOnce
}

// NewServer returns a server for a node.
func NewServer(host Host, id *Identity, version string, log *slog.Logger, now func() time.Time) *Server {
	s := &Server{
		host:    host,
		id:      id,
		version: version,
		log:     log,
		now:     now,
		told:    map[string]time.Time{},
	}
	s.limit = newLimiter(now, s.memberAddress)
	return s
}

// memberAddress reports whether a present node of the table has this address.
func (s *Server) memberAddress(a netip.Addr) bool {
	t := s.host.Table()
	for _, n := range t.Present() {
		if own, err := netip.ParseAddr(n.Address); err == nil && own.Unmap() == a {
			return true
		}
	}
	return false
}

// maxTold is the largest size of the map Server.told. warnOnce logs the same warning about one
// source at most once a minute.
const (
	maxTold = 1024
)

func (s *Server) warnOnce(r *http.Request, msg string, args ...any) {
	key := msg + " " + ratelimit.SourceOf(r.RemoteAddr).String()
	now := s.now()
	s.mu.Lock()
	last, ok := s.told[key]
	if ok && now.Sub(last) < time.Minute {
		s.mu.Unlock()
		return
	}

	if len(s.told) >= maxTold {
		clear(s.told)
	}

	s.told[key] = now
	s.mu.Unlock()
	s.log.Warn("node API: "+msg, append([]any{"peer", r.RemoteAddr}, args...)...)
}

// Serve answers on ln until ctx ends, and closes ln.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	srv := &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       answerTakes,
		WriteTimeout:      4 * answerTakes,
		IdleTimeout:       60 * time.Second,
		MaxHeaderBytes:    8 << 10,
		ConnState:         s.limit.connState,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, meetingKey{}, &meeting{conn: c})
		},
		TLSConfig: s.id.serverTLS(),
		ErrorLog:  slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}

	err := httpserver.Serve(ctx, srv, tls.NewListener(ln, srv.TLSConfig), 2*time.Second)
	if err == nil {
		return nil
	}

	return fmt.Errorf("node API: %w", err)
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/join/hello", withBody(maxHello, s.answerHello))
	mux.HandleFunc("POST /v1/join/prove", withBody(maxProve, s.answerProof))

	routes := routes{server: s, mux: mux, table: accessTable()}
	s.tableRoutes(routes)
	s.stateRoutes(routes)
	s.storageRoutes(routes)
	s.minionRoutes(routes)
	s.optionsRoutes(routes)
	s.systemRoutes(routes)
	s.gitRoutes(routes)
	s.auditRoutes(routes)
	s.eventRoutes(routes)
	s.toolRoute(routes)
	s.courseRoutes(routes)
	s.filesRoutes(routes)
	routes.checkRows()

	return mux
}

// tableRoutes adds the routes of the table of nodes and of the state of this node.
func (s *Server) tableRoutes(routes routes) {
	routes.addRoute("GET /v1/table", func(w http.ResponseWriter, _ *http.Request, _ nodes.Node) { replyJSON(w, s.host.Table()) })
	routes.addRoute("GET /v1/status",
		func(w http.ResponseWriter, _ *http.Request, _ nodes.Node) { replyJSON(w, s.host.Summary()) })
	routes.addRoute("GET /v1/marks",
		func(w http.ResponseWriter, _ *http.Request, n nodes.Node) { replyJSON(w, s.host.Marks(n.Certificate)) })
	routes.addRoute("PUT /v1/table", func(w http.ResponseWriter, r *http.Request, n nodes.Node) {
		b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, nodes.MaxTable))
		var t nodes.Table
		if err == nil {
			t, err = nodes.Parse(b)
		}
		if err == nil {
			err = s.offered(r, n, t)
		}

		if err != nil {
			refuse(w, newFault(codeRequest, err.Error(), http.StatusBadRequest))
			return
		}

		replyJSON(w, struct{}{})
	})
}

// offered accepts the table t that the node sender offers. The table must be the next version, and
// may change only what that node may change. A node that missed a version finds the newest table on
// the shared storage.
func (s *Server) offered(r *http.Request, sender nodes.Node, t nodes.Table) error {
	now := s.host.Table()
	switch {
	case t.Version <= now.Version:
		return nil
	case t.Version > now.Version+1:
		s.host.LookForTable()
		return fmt.Errorf("this node has version %d of the table of nodes; it looks for a newer one by itself, "+
			"and does not take version %d from %s", now.Version, t.Version, sender.Name)
	}

	if err := nodes.CheckStep(sender, now, t); err != nil {
		s.warnOnce(r, "a node offers a table of nodes that it may not make", "node", sender.Name, "error", err)
		return err
	}

	return s.host.Offer(t)
}

// stateRoutes adds the routes that change the asking node's state in the table.
func (s *Server) stateRoutes(routes routes) {
	routes.addRoute("POST /v1/ready", s.changeState(nodes.Member))
	routes.addRoute("POST /v1/drain", s.changeState(nodes.Draining))
	routes.addRoute("POST /v1/leave", s.changeState(nodes.Leaving))
	routes.addRoute("POST /v1/gone", s.changeState(nodes.Removed))
}

// minionRoutes adds the routes of minions.
func (s *Server) minionRoutes(routes routes) {
	routes.addRoute("GET /v1/minions", func(w http.ResponseWriter, r *http.Request, _ nodes.Node) {
		list, err := s.host.Minions(r.Context(), r.URL.Query().Get("finger") != "")
		answer(w, list, err)
	})
}

// member returns a handler that passes a request to next only if a node of the table has sent it,
// as its key proves, and may use the route.
func (s *Server) member(allowed access, next memberHandler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		t := s.host.Table()
		n, ok := t.ByCertificate(peerHash(r.TLS))
		switch {
		case t.WasRemoved(peerHash(r.TLS)):
			s.warnOnce(r, "a removed node was refused", "node", n.Name)
			refuse(w, newFault(codeRemoved, "this node was removed from cluster "+t.Cluster, http.StatusGone))
			return
		case !ok:
			s.warnOnce(r, "a stranger was refused", "path", r.URL.Path)
			refuse(w, newFault(codeStranger, "this cluster does not know your certificate", http.StatusForbidden))
			return
		}

		s.proven(r, true)
		copied, err := s.noteSpeaker(r, n)
		if err != nil {
			refuse(w, newFault(codeRequest, err.Error(), http.StatusBadRequest))
			return
		}

		if why := allowed.refusal(n, copied); why != "" {
			s.warnOnce(r, "a node asked for what it may not", "node", n.Name, "path", r.URL.Path, "reason", why)
			refuse(w, newFault(codeAccess, why, http.StatusForbidden))
			return
		}

		next(w, r, n)
	}
}

func (s *Server) proven(r *http.Request, member bool) {
	if m, ok := r.Context().Value(meetingKey{}).(*meeting); ok {
		s.limit.proven(m.conn, member)
	}
}

// changeState returns a handler that changes the asking node's own state and answers with the new
// table.
func (s *Server) changeState(to nodes.State) memberHandler {
	return func(w http.ResponseWriter, r *http.Request, n nodes.Node) {
		t, err := s.host.SetState(r.Context(), n.Name, to)
		record := audit.Record{Actor: peerActor(r, n.Name, audit.Peer), Action: "node." + stateVerb(to), Object: n.Name}
		record.Limited = roleOf(n) != fullRole || n.State == nodes.Joining
		s.host.Record(record.Ended(err))
		if err != nil {
			refuse(w, faultOf(err))
			return
		}
		s.log.Info("node changed its state", "peer", n.Name, "state", to)
		replyJSON(w, t)
	}
}

// withBody returns a handler that decodes a body of at most limit bytes for handle.
func withBody[T any](limit int64, handle func(http.ResponseWriter, *http.Request, T)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var v T
		b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
		if err == nil {
			err = json.Unmarshal(b, &v) // fails when something follows the message
		}
		if err != nil {
			refuse(w, newFault(codeRequest, "the message cannot be read", http.StatusBadRequest))
			return
		}
		handle(w, r, v)
	}
}

func replyJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // if the peer has closed the connection, it repeats its request
}

func newFault(code, text string, status int) fault {
	return fault{Code: code, Error: text, http: status}
}

func refuse(w http.ResponseWriter, f fault) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Connection", "close")
	w.WriteHeader(f.http)
	_ = json.NewEncoder(w).Encode(f)
}

// faultOf returns the fault to send for an error of the host.
func faultOf(err error) fault {
	switch {
	case errors.Is(err, ErrName):
		return newFault(codeName, err.Error(), http.StatusConflict)
	case errors.Is(err, ErrRole):
		return newFault(codeRole, err.Error(), http.StatusConflict)
	case errors.Is(err, ErrRemoved):
		return newFault(codeRemoved, err.Error(), http.StatusGone)
	case errors.Is(err, options.ErrChanged):
		return newFault(codeChanged, err.Error(), http.StatusConflict)
	case errors.Is(err, options.ErrTrying):
		return newFault(codeTrying, err.Error(), http.StatusConflict)
	case errors.Is(err, options.ErrNotHeld):
		return newFault(codeNotHeld, err.Error(), http.StatusConflict)
	case errors.Is(err, ErrStorage), errors.Is(err, nodes.ErrShared):
		return newFault(codeStorage, err.Error(), http.StatusServiceUnavailable)
	}

	return newFault(codeSelf, err.Error(), http.StatusInternalServerError)
}
