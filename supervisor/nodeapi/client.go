package nodeapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"saltern/internal/printable"
	"saltern/supervisor/marks"
	"saltern/supervisor/nodeapi/internal/spake2"
	"saltern/supervisor/nodes"
	"saltern/supervisor/status"
)

// Client sends requests to one node whose key is known. It is safe for concurrent use. Close closes
// idle connections.
type Client struct {
	http *http.Client
}

// NewClient returns a client for the node at address (host:port) whose certificate has the hash
// pin. It does not connect yet.
func NewClient(id *Identity, address, pin string) *Client {
	t := &http.Transport{
		DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			if pin == "" {
				return nil, ErrPin
			}
			return dialPinned(ctx, id, address, pin)
		},
		MaxIdleConns:       1,
		MaxConnsPerHost:    4,
		IdleConnTimeout:    45 * time.Second,
		DisableCompression: true,
	}
	return &Client{http: &http.Client{Transport: speaking(t, id), Timeout: 4 * answerTakes, CheckRedirect: noRedirect}}
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Close ends idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

func dialPinned(ctx context.Context, id *Identity, address, pin string) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var d net.Dialer
	raw, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	c := tls.Client(raw, id.clientTLS(pin))
	if err := c.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, err
	}
	return c, nil
}

// Status asks the node for a summary of its status.
func (c *Client) Status(ctx context.Context) (s Summary, err error) {
	return s, c.do(ctx, http.MethodGet, "/v1/status", nil, &s)
}

// Marks returns the marks of the node's disks, and the marks of other nodes that the node
// remembers. For a node with an older version it returns an empty report.
func (c *Client) Marks(ctx context.Context) (r marks.Report, err error) {
	err = c.within(ctx, marks.MaxReport, http.MethodGet, "/v1/marks", nil, &r)
	if notThere(err) {
		return marks.Report{}, nil
	}
	if err == nil {
		err = r.Check()
	}
	if err != nil {
		return marks.Report{}, err
	}
	return r, nil
}

// Table fetches the node's table and checks it.
func (c *Client) Table(ctx context.Context) (t nodes.Table, err error) {
	if err := c.do(ctx, http.MethodGet, "/v1/table", nil, &t); err != nil {
		return nodes.Table{}, err
	}
	return t, t.Check()
}

// Offer sends the node a table that may be newer than its own.
func (c *Client) Offer(ctx context.Context, t nodes.Table) error {
	return c.do(ctx, http.MethodPut, "/v1/table", t, nil)
}

// SetState asks the node to change our own state in the table to Member, Draining, Leaving or
// Removed. It returns the new table.
func (c *Client) SetState(ctx context.Context, s nodes.State) (nodes.Table, error) {
	path := map[nodes.State]string{
		nodes.Member:   "/v1/ready",
		nodes.Draining: "/v1/drain",
		nodes.Leaving:  "/v1/leave",
		nodes.Removed:  "/v1/gone",
	}[s]
	if path == "" {
		return nodes.Table{}, fmt.Errorf("state %s cannot be asked for", s)
	}

	var t nodes.Table
	if err := c.do(ctx, http.MethodPost, path, struct{}{}, &t); err != nil {
		return nodes.Table{}, err
	}

	return t, t.Check()
}

// Minions returns what the node's master knows about its minions. If finger is set, the list
// includes the fingerprints of their keys.
func (c *Client) Minions(ctx context.Context, finger bool) (list status.MinionView, err error) {
	path := "/v1/minions"
	if finger {
		path += "?finger=1"
	}
	if err := c.within(ctx, maxList, http.MethodGet, path, nil, &list); err != nil {
		return status.MinionView{}, err
	}
	if n := max(len(list.Minions), len(list.Subscriptions)); n > status.MaxMinions {
		return status.MinionView{}, fmt.Errorf("node API: a list of %d minions", n)
	}
	return list, nil
}

func (c *Client) do(ctx context.Context, method, path string, in, into any) error {
	return c.within(ctx, maxAnswer, method, path, in, into)
}

// within sends a request and decodes the answer into the variable to which decoded points. An
// answer of more than limit bytes is an error.
func (c *Client) within(ctx context.Context, limit int64, method, path string, in, decoded any) error {
	var body io.Reader = http.NoBody
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}

	req, err := http.NewRequestWithContext(ctx, method, "https://node"+path, body)
	if err != nil {
		return err
	}

	resp, err := c.http.Do(req)
	if err != nil {
		return shortError(err)
	}
	defer resp.Body.Close()

	b, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err != nil {
		return shortError(err)
	}
	if int64(len(b)) > limit {
		return errors.New("node API: the answer is too large")
	}

	if resp.StatusCode != http.StatusOK {
		var f fault
		if json.Unmarshal(b, &f) != nil || f.Error == "" {
			return &httpError{resp.StatusCode, resp.Status}
		}
		if f.Code == codeProtocol {
			return fmt.Errorf("%w: %s", ErrProtocol, protocolAdvice(f.Protocol))
		}

		if kind := codes[f.Code]; kind != nil {
			return &refusedError{kind, oneLine(f.Error), f.Next}
		}

		return errors.New(oneLine(f.Error))
	}

	if decoded == nil {
		return nil
	}

	if err := json.Unmarshal(b, decoded); err != nil {
		return fmt.Errorf("node API: the answer cannot be read: %w", err)
	}

	return nil
}

// refusedError is a refusal of another node. It wraps its kind, such as ErrSecret.
type refusedError struct {
	kind error
	text string
	next bool // the cluster is changing its secret: the next secret may be accepted
}

func (e *refusedError) Error() string { return e.text }
func (e *refusedError) Unwrap() error { return e.kind }

// shortError removes the URL from an error of package http.
func shortError(err error) error {
	if errors.Is(err, ErrPin) {
		return ErrPin
	}
	if errors.Is(err, context.DeadlineExceeded) { // also matches the timeout of http.Client
		return fmt.Errorf("no answer in time: %w", context.DeadlineExceeded)
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op
	}
	return err
}

// oneLine shortens and cleans a text of another node, so that it fits on one line.
func oneLine(s string) string { return printable.Brief(s, 400) }

// Ask is the request of a machine to a cluster that it does not belong to yet.
type Ask struct {
	Address string // host:port of a node
	Cluster string // name of the cluster; empty: not known
	Secret  string
	KeyHash string // from the join string; empty: not known, and the secret alone proves the cluster
	Version string
	Pin     string // hash of the certificate of the node at Address, from an earlier [Met]; empty: not known
	Join    bool   // false: do not join, only ask
	Node    nodes.Node
	Ports   []int // ports of this machine that the node should try
}

// Met is the result of meeting a cluster. All of it comes from a node that has authenticated as a
// member of the cluster.
type Met struct {
	Table   nodes.Table
	Storage Storage
	Version string
	// Skew is how far the node's clock is ahead of ours. Its error is at most Round.
	Skew, Round time.Duration
	Reach       []Reach
	// Node is the hash of the certificate of the node that answered.
	Node string
}

// protocolAdvice returns a sentence that says which end must be upgraded first.
func protocolAdvice(theirs int) string {
	if theirs <= protocol { // 0: the node's version does not send the number yet
		return fmt.Sprintf("its nodes join machines by an older protocol (%d) than this machine's (%d): "+
			"upgrade the nodes of the cluster first, or install their version on this machine and upgrade it afterwards",
			max(theirs, 1), protocol)
	}
	return fmt.Sprintf("its nodes join machines by a newer protocol (%d) than this machine's (%d): "+
		"upgrade this machine to the cluster's version", theirs, protocol)
}

// Meet authenticates this machine and the cluster to each other, and joins if a.Join is set.
// [ErrProof] means that the other end does not know the cluster's secret. While the cluster changes
// its secret, Meet tries the next secret on a second connection, because each connection allows one
// attempt only.
func Meet(ctx context.Context, id *Identity, a Ask) (*Met, error) {
	met, err := meetOnce(ctx, id, a, false)
	if r, ok := errors.AsType[*refusedError](err); ok && r.next {
		return meetOnce(ctx, id, a, true)
	}
	return met, err
}

// oneConnection returns a client that sends all its requests over conn. The caller calls done after
// the last request.
func oneConnection(conn *tls.Conn) (c *Client, done func()) {
	given := make(chan *tls.Conn, 1)
	given <- conn
	t := &http.Transport{
		DisableCompression: true,
		MaxConnsPerHost:    1,
		DialTLSContext: func(context.Context, string, string) (net.Conn, error) {
			select {
			case c := <-given:
				return c, nil
			default: // a new connection would not be authenticated
				return nil, errors.New("the other node ended the connection")
			}
		},
	}

	return &Client{http: &http.Client{
		Transport:     t,
		Timeout:       4 * answerTakes,
		CheckRedirect: noRedirect,
	}}, t.CloseIdleConnections
}

func meetOnce(ctx context.Context, id *Identity, a Ask, next bool) (*Met, error) {
	w, err := stretch(a.Secret)
	if err != nil {
		return nil, err
	}

	exchange, err := spake2.New(w, true)
	if err != nil {
		return nil, err
	}

	conn, err := dialPinned(ctx, id, a.Address, a.Pin)
	if err != nil {
		return nil, err
	}
	defer conn.Close()

	state := conn.ConnectionState()
	bind, err := binding(&state)
	if err != nil {
		return nil, err
	}

	there := peerHash(&state)
	c, done := oneConnection(conn)
	defer done()

	var hello helloReply
	mine := newNonce()
	sent := time.Now()
	q := helloRequest{
		Protocol: protocol,
		Version:  a.Version,
		Cluster:  a.Cluster,
		Nonce:    mine,
		Share:    exchange.Share(),
		Next:     next,
	}

	if err := c.do(ctx, http.MethodPost, "/v1/join/hello", q, &hello); err != nil {
		return nil, err
	}

	round := time.Since(sent)
	skew := time.Until(hello.Time) + round/2
	hash := KeyHash(hello.Key)
	if err := a.checkHello(hello, hash); err != nil {
		return nil, err
	}

	if err := verifyCluster(hello.Key, transcript("cluster key", bind, mine, hello.Nonce, id.Hash, there),
		hello.Signature); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProof, err)
	}

	proof, theirs, err := exchange.Finish(hello.Share, meetingNames(bind, mine, hello.Nonce, id.Hash, there, hash))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProof, err)
	}

	r, err := c.sendProof(ctx, a, proof)
	if err != nil {
		return nil, err
	}

	if !spake2.Equal(r.Proof, theirs) {
		return nil, fmt.Errorf("%w: it does not know the secret", ErrProof)
	}

	if err := r.Table.Check(); err != nil {
		return nil, err
	}
	if r.Table.KeyHash != hash {
		return nil, fmt.Errorf("%w: its table of nodes names another key", ErrProof)
	}

	return &Met{
		Table:   r.Table,
		Storage: r.Storage,
		Version: oneLine(hello.Version),
		Skew:    skew,
		Round:   round,
		Reach:   r.Reach,
		Node:    there,
	}, nil
}

// checkHello returns an error for an answer with another protocol, from another cluster than the
// join string names, or without a nonce. hash is the hash of the key in the answer.
func (a Ask) checkHello(hello helloReply, hash string) error {
	switch {
	case hello.Protocol != protocol:
		return fmt.Errorf("%w: %s", ErrProtocol, protocolAdvice(hello.Protocol))
	case a.KeyHash != "" && a.KeyHash != hash:
		return fmt.Errorf("%w: its key has the hash %.12s…, the join string says %.12s…", ErrProof,
			hash, a.KeyHash)
	case !validNonce(hello.Nonce):
		return fmt.Errorf("%w: no nonce", ErrProof)
	}
	return nil
}

// sendProof sends the confirmation that this machine knows the secret, and asks to join if a.Join
// is set.
func (c *Client) sendProof(ctx context.Context, a Ask, proof []byte) (reply proveReply, err error) {
	p := proveRequest{
		Proof: proof,
		Join:  a.Join,
		Node:  a.Node,
		Ports: a.Ports,
		Pad:   strings.Repeat("-", padding),
	}

	err = c.do(ctx, http.MethodPost, "/v1/join/prove", p, &reply)
	if err == nil {
		return reply, nil
	}
	if _, refused := errors.AsType[*refusedError](err); a.Pin == "" && !refused {
		err = fmt.Errorf("%w: %w", ErrUnproven, err)
	}
	return proveReply{}, err
}
