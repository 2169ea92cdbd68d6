package api

import (
	"context"
	"net/http"
	"time"

	"saltern/supervisor/setup"
)

// Cluster is what the routes of the cluster serve, with [Recovery]:
//
//	GET  /v1/cluster/join-string   the line with which another node joins; a secret
//	POST /v1/cluster/drain         {node, end}: give a node no new minions; end: again
//	POST /v1/cluster/leave         this node goes
//	POST /v1/cluster/remove        {node, force}: a dead node is taken out
//	POST /v1/cluster/ping          {node} → []setup.Check
//	POST /v1/cluster/recover       {force}: this node becomes a cluster of its own
//	GET  /v1/cluster/recover       how far that is (Recovering)
//	POST /v1/cluster/key           {key}: the key of that hash that an import laid beside the cluster's takes its place
//	GET  /v1/cluster/key           the cluster's key and the one beside it (ClusterKeys)
//	POST /v1/cluster/newkey        a new key is laid beside the cluster's; → ClusterKeys
//	POST /v1/cluster/rotate        {force}: the cluster gets a new secret; → {without}
type Cluster interface {
	JoinString() (string, error)
	Drain(ctx context.Context, node string, end bool) error
	Leave(ctx context.Context) error
	Remove(ctx context.Context, node string, force bool) error
	Ping(ctx context.Context, node string) ([]setup.Check, error)
	RotateSecret(ctx context.Context, force bool) (without []string, err error)
	// TakeKey has the key count that lies beside the cluster's, if it has that hash, and
	// takes the turn to restart the masters for it.
	TakeKey(ctx context.Context, hash string) error
	// Keys are the cluster's key and the one that lies beside it.
	Keys() (ClusterKeys, error)
	// NewKey lays a new key beside the cluster's, unless one lies there.
	NewKey(ctx context.Context) (ClusterKeys, error)
}

// ClusterKeys are the public halves of the key by which minions know the cluster.
type ClusterKeys struct {
	Key  ClusterKey  `json:"key"`
	Next *ClusterKey `json:"next,omitempty"` // nil: none lies beside it
}

// ClusterKey is the public half of a key.
type ClusterKey struct {
	Hash   string `json:"hash"`   // as in the table of nodes
	Finger string `json:"finger"` // as in master_finger of a minion
	Path   string `json:"path"`   // of the file, as minions keep it in minion_master.pub
}

// Recovery makes a cluster of its own of a node whose other nodes are lost.
type Recovery interface {
	Recover(ctx context.Context, force bool) error
	Recovering() (Recovering, error)
}

// Recovering is how far it is that a node becomes a cluster of its own.
type Recovering struct {
	Stage string `json:"stage"`           // copy, switch or masters; empty: nothing is under way
	Fault string `json:"fault,omitempty"` // why the last try failed
}

// changeTakes bounds a change of the cluster.
const changeTakes = 75 * time.Second

type clusterRequest struct {
	Node  string `json:"node"`
	End   bool   `json:"end,omitempty"`
	Force bool   `json:"force,omitempty"`
	Key   string `json:"key,omitempty"`
}

func (s *Server) clusterRoutes(mux *http.ServeMux, n Cluster) {
	mux.HandleFunc("GET /v1/cluster/join-string", func(w http.ResponseWriter, _ *http.Request) {
		line, err := n.JoinString()
		s.answer(w, map[string]string{"joinString": line}, err)
	})

	mux.HandleFunc("POST /v1/cluster/drain", s.change(func(ctx context.Context, q clusterRequest) (any, error) {
		return struct{}{}, n.Drain(ctx, q.Node, q.End)
	}))
	mux.HandleFunc("POST /v1/cluster/leave", s.change(func(ctx context.Context, _ clusterRequest) (any, error) {
		return struct{}{}, n.Leave(ctx)
	}))
	mux.HandleFunc("POST /v1/cluster/remove", s.change(func(ctx context.Context, q clusterRequest) (any, error) {
		return struct{}{}, n.Remove(ctx, q.Node, q.Force)
	}))
	mux.HandleFunc("POST /v1/cluster/ping", s.change(func(ctx context.Context, q clusterRequest) (any, error) {
		return n.Ping(ctx, q.Node)
	}))
	mux.HandleFunc("POST /v1/cluster/key", s.change(func(ctx context.Context, q clusterRequest) (any, error) {
		return struct{}{}, n.TakeKey(ctx, q.Key)
	}))
	mux.HandleFunc("GET /v1/cluster/key", func(w http.ResponseWriter, _ *http.Request) {
		keys, err := n.Keys()
		s.answer(w, keys, err)
	})

	mux.HandleFunc("POST /v1/cluster/newkey", s.change(func(ctx context.Context, _ clusterRequest) (any, error) {
		return n.NewKey(ctx)
	}))
	mux.HandleFunc("POST /v1/cluster/rotate", s.change(func(ctx context.Context, q clusterRequest) (any, error) {
		without, err := n.RotateSecret(ctx, q.Force)
		return rotateReply{without}, err
	}))
}

func (s *Server) recoveryRoutes(mux *http.ServeMux, n Recovery) {
	mux.HandleFunc("POST /v1/cluster/recover", s.change(func(ctx context.Context, q clusterRequest) (any, error) {
		return struct{}{}, n.Recover(ctx, q.Force)
	}))
	mux.HandleFunc("GET /v1/cluster/recover", func(w http.ResponseWriter, _ *http.Request) {
		r, err := n.Recovering()
		s.answer(w, r, err)
	})
}

// change serves a request that changes the cluster.
func (s *Server) change(do func(context.Context, clusterRequest) (any, error)) http.HandlerFunc {
	return withBody(func(w http.ResponseWriter, r *http.Request, q clusterRequest) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(changeTakes + 10*time.Second))
		ctx, cancel := context.WithTimeout(r.Context(), changeTakes)
		defer cancel()
		v, err := do(ctx, q)
		s.answer(w, v, err)
	})
}

type rotateReply struct {
	Without []string `json:"without"`
}

// JoinString gives the line with which another node joins. It is a secret.
func (c *Client) JoinString(ctx context.Context) (string, error) {
	var a struct{ JoinString string }
	err := c.do(ctx, http.MethodGet, "/v1/cluster/join-string", nil, &a)
	return a.JoinString, err
}

// Drain gives a node no new minions and moves its old ones slowly; end ends
// that.
func (c *Client) Drain(ctx context.Context, node string, end bool) error {
	return c.change(ctx, "drain", clusterRequest{Node: node, End: end}, nil)
}

// Leave takes this node out of the cluster.
func (c *Client) Leave(ctx context.Context) error {
	return c.change(ctx, "leave", clusterRequest{}, nil)
}

// Remove takes another node out of the cluster; force even if it answers.
func (c *Client) Remove(ctx context.Context, node string, force bool) error {
	return c.change(ctx, "remove", clusterRequest{Node: node, Force: force}, nil)
}

// Ping tries everything that this node needs of another one.
func (c *Client) Ping(ctx context.Context, node string) (list []setup.Check, err error) {
	err = c.change(ctx, "ping", clusterRequest{Node: node}, &list)
	return list, err
}

// Recover begins to make a cluster of its own of this node; Recovering tells
// how far it is.
func (c *Client) Recover(ctx context.Context, force bool) error {
	return c.change(ctx, "recover", clusterRequest{Force: force}, nil)
}

// Recovering tells how far a recovery is.
func (c *Client) Recovering(ctx context.Context) (r Recovering, err error) {
	return r, c.do(ctx, http.MethodGet, "/v1/cluster/recover", nil, &r)
}

// RotateSecret gives the cluster a new secret. It may be called again after an
// error. With force it does not wait for nodes that cannot be reached; these
// are returned.
func (c *Client) RotateSecret(ctx context.Context, force bool) ([]string, error) {
	var r rotateReply
	err := c.change(ctx, "rotate", clusterRequest{Force: force}, &r)
	return r.Without, err
}

// TakeKey has the key of that hash count that an import laid beside the cluster's. The
// masters take it when they start; it may be called again after an error.
func (c *Client) TakeKey(ctx context.Context, hash string) error {
	return c.change(ctx, "key", clusterRequest{Key: hash}, nil)
}

// ClusterKeys returns the cluster's key and the one that lies beside it.
func (c *Client) ClusterKeys(ctx context.Context) (keys ClusterKeys, err error) {
	return keys, c.do(ctx, http.MethodGet, "/v1/cluster/key", nil, &keys)
}

// NewKey lays a new key beside the cluster's, unless one lies there. Nobody uses it before
// TakeKey.
func (c *Client) NewKey(ctx context.Context) (keys ClusterKeys, err error) {
	return keys, c.change(ctx, "newkey", clusterRequest{}, &keys)
}

func (c *Client) change(ctx context.Context, verb string, q clusterRequest, into any) error {
	ctx, cancel := context.WithTimeout(ctx, changeTakes+5*time.Second)
	defer cancel()
	return c.post(ctx, "/v1/cluster/"+verb, q, into)
}
