package api

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"sync/atomic"
	"time"

	"saltern/internal/audit"
	"saltern/internal/control"
	"saltern/internal/localsock"
	"saltern/internal/rpc"
	"saltern/supervisor/history"
	"saltern/supervisor/options"
	"saltern/supervisor/setup"
	"saltern/supervisor/status"
	"saltern/supervisor/storage"
	"saltern/supervisor/upgrade/rollout"
)

// Client talks to the supervisor on the same machine. It is safe for
// concurrent use.
type Client struct {
	socket string
	rpc    rpc.Client
}

// ErrNotRunning means that no supervisor listens on the socket.
var ErrNotRunning = errors.New("applianced is not running")

// conn records that the other end has closed the connection, because net/http returns unexported
// errors for that.
type conn struct {
	net.Conn
	ended atomic.Bool
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.noteEnd(err)
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.noteEnd(err)
	return n, err
}

func (c *conn) noteEnd(err error) {
	if err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.ended.Store(true)
	}
}

// maxAnswer bounds an answer of the supervisor, in bytes.
const maxAnswer = 96 << 20

// NewClient returns a client for the unix socket at the path socket. It does not connect yet.
func NewClient(socket string) *Client {
	t := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			c, err := d.DialContext(ctx, "unix", socket)
			if err != nil {
				return nil, err
			}
			return &conn{Conn: c}, nil
		},
		MaxIdleConns:    1,
		IdleConnTimeout: 10 * time.Second,
	}

	return &Client{
		socket: socket,
		rpc: rpc.Client{
			Socket: localsock.Client{MaxAnswer: maxAnswer, HTTP: &http.Client{Transport: t}},
			Host:   "applianced",
			Header: http.Header{http.CanonicalHeaderKey(tokenHeader): {rand.Text()}},
		},
	}
}

// call sends a request for a method and returns the answer. It waits as long as the method may
// take, or until ctx ends.
func call[In, Out any](ctx context.Context, c *Client, m *rpc.Method[In, Out], in In) (Out, error) {
	var used *conn
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(i httptrace.GotConnInfo) { used, _ = i.Conn.(*conn) },
	})

	out, err := rpc.Call(ctx, &c.rpc, m, in)
	if err == nil {
		return out, nil
	}

	if refusal, ok := errors.AsType[*rpc.Error](err); ok {
		return out, refusal
	}
	if unreadable, ok := errors.AsType[*rpc.AnswerError](err); ok {
		return out, fmt.Errorf("answer of applianced: %w", unreadable)
	}

	op, failed := errors.AsType[*net.OpError](err)
	switch {
	case failed && op.Op == "dial":
		err = fmt.Errorf("%w (%s: %w)", ErrNotRunning, c.socket, op.Err)
	case used != nil && used.ended.Load(): // the supervisor has ended during the call, perhaps for a restart
		err = fmt.Errorf("%w any more (%s: %w)", ErrNotRunning, c.socket, err)
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("applianced does not answer: %w", err)
	default:
		err = fmt.Errorf("ask applianced: %w", err)
	}
	return out, err
}

// order sends a request for a method that has no answer.
func order[In any](ctx context.Context, c *Client, m *rpc.Method[In, rpc.None], in In) error {
	_, err := call(ctx, c, m, in)
	return err
}

// Status fetches the status document.
func (c *Client) Status(ctx context.Context) (status.Document, error) {
	d, err := call(ctx, c, ReadStatus, rpc.None{})
	if err == nil && d.Schema != status.Schema {
		err = fmt.Errorf("status document has schema %d, this program knows %d", d.Schema, status.Schema)
	}
	return d, err
}

// Config returns the text of the configuration file.
func (c *Client) Config(ctx context.Context) ([]byte, error) {
	answer, err := call(ctx, c, ReadConfig, rpc.None{})
	return []byte(answer.Text), err
}

// SetConfig replaces the configuration. If the configuration is wrong, the supervisor refuses it
// and changes nothing.
func (c *Client) SetConfig(ctx context.Context, text []byte) error {
	return order(ctx, c, SetConfig, text)
}

// CheckConfig checks a configuration without using it.
func (c *Client) CheckConfig(ctx context.Context, text []byte) error {
	return order(ctx, c, CheckConfig, text)
}

// Reload restarts the node's services with the present configuration file.
func (c *Client) Reload(ctx context.Context) error {
	return order(ctx, c, Reload, rpc.None{})
}

// Output returns the last lines that a service wrote.
func (c *Client) Output(ctx context.Context, service string, lines int) ([]string, error) {
	answer, err := call(ctx, c, ReadOutput, OutputRequest{service, lines})
	return answer.Lines, err
}

// Log returns a page of what a service wrote.
func (c *Client) Log(ctx context.Context, service string, q LogQuery) (LogPage, error) {
	return call(ctx, c, ReadLog, LogRequest{service, q})
}

// Restart restarts a service.
func (c *Client) Restart(ctx context.Context, service string) error {
	return order(ctx, c, RestartService, service)
}

// Storage returns the state of the shared volume as the node sees it.
func (c *Client) Storage(ctx context.Context) (storage.State, error) {
	return call(ctx, c, ReadStorage, rpc.None{})
}

// Events returns the events that this node saw.
func (c *Client) Events(ctx context.Context, q history.Query) ([]history.Event, error) {
	answer, err := call(ctx, c, ListEvents, q)
	return answer.Events, err
}

// History returns the events that all nodes saw.
func (c *Client) History(ctx context.Context, q history.Query) (history.List, error) {
	return call(ctx, c, ListHistory, q)
}

// Audit returns the audit records of all nodes.
func (c *Client) Audit(ctx context.Context, q audit.Query) (audit.List, error) {
	return call(ctx, c, ListRecords, q)
}

// JoinString returns the join string, with which another node joins. It is a secret.
func (c *Client) JoinString(ctx context.Context) (string, error) {
	answer, err := call(ctx, c, ShowJoinString, rpc.None{})
	return answer.JoinString, err
}

// Drain stops sending new minions to a node and moves the minions that it has slowly to other
// nodes. If end is set, it allows new minions again.
func (c *Client) Drain(ctx context.Context, node string, end bool) error {
	return order(ctx, c, DrainNode, ClusterRequest{Node: node, End: end})
}

// Leave removes this node from the cluster.
func (c *Client) Leave(ctx context.Context) error {
	return order(ctx, c, LeaveCluster, rpc.None{})
}

// Remove removes another node from the cluster. If force is set, Remove does so even if that node
// answers.
func (c *Client) Remove(ctx context.Context, node string, force bool) error {
	return order(ctx, c, RemoveNode, ClusterRequest{Node: node, Force: force})
}

// Ping tries all connections that this node needs to another node.
func (c *Client) Ping(ctx context.Context, node string) ([]setup.Check, error) {
	return call(ctx, c, PingNode, ClusterRequest{Node: node})
}

// Recover starts a recovery, which makes this node a new cluster that has no other node. The method
// Recovering returns its progress.
func (c *Client) Recover(ctx context.Context, force bool) error {
	return order(ctx, c, RecoverNode, ClusterRequest{Force: force})
}

// Recovering returns the progress of a recovery.
func (c *Client) Recovering(ctx context.Context) (Recovering, error) {
	return call(ctx, c, ReadRecovery, rpc.None{})
}

// RotateSecret replaces the cluster's secret. It returns the names of the nodes that do not have
// the new secret yet.
func (c *Client) RotateSecret(ctx context.Context, force bool) ([]string, error) {
	answer, err := call(ctx, c, RotateSecret, ClusterRequest{Force: force})
	return answer.Without, err
}

// TakeKey replaces the cluster's key by the prepared key. The prepared key must have the given
// hash, see [TakeClusterKey].
func (c *Client) TakeKey(ctx context.Context, hash string) error {
	return order(ctx, c, TakeClusterKey, ClusterRequest{Key: hash})
}

// ClusterKeys returns the cluster's key, and the prepared new key if there is one.
func (c *Client) ClusterKeys(ctx context.Context) (ClusterKeys, error) {
	return call(ctx, c, ReadClusterKeys, rpc.None{})
}

// NewKey prepares a new key beside the cluster's present key, unless one is prepared already. The
// new key is not used before TakeKey.
func (c *Client) NewKey(ctx context.Context) (ClusterKeys, error) {
	return call(ctx, c, MakeClusterKey, rpc.None{})
}

// Fit returns nil if the node may have the virtual address. An [ErrState] says why it may not.
func (c *Client) Fit(ctx context.Context) error {
	return order(ctx, c, CheckVirtual, rpc.None{})
}

// SetVirtual changes the cluster's virtual address. An empty address removes it.
func (c *Client) SetVirtual(ctx context.Context, address string) error {
	return order(ctx, c, SetVirtual, VirtualRequest{&address})
}

// Turn returns which node has the turn to restart.
func (c *Client) Turn(ctx context.Context) (Turn, error) {
	return call(ctx, c, ReadTurn, rpc.None{})
}

// TakeTurn acquires the turn for this node, and drains the node. An [ErrState] says which node has
// the turn, or why the cluster needs this node. If force is set, TakeTurn ignores both reasons.
func (c *Client) TakeTurn(ctx context.Context, force bool) error {
	return order(ctx, c, ChangeTurn, ClusterRequest{Force: force})
}

// EndTurn releases the turn.
func (c *Client) EndTurn(ctx context.Context) error {
	return order(ctx, c, ChangeTurn, ClusterRequest{End: true})
}

// Apply asks all nodes to load the present options of the master, one node after another. It
// returns when the rolling change has begun.
func (c *Client) Apply(ctx context.Context, q ApplyRequest) error {
	return order(ctx, c, ApplyOptions, q)
}

// Applying returns the progress of Apply.
func (c *Client) Applying(ctx context.Context) (options.Progress, error) {
	return call(ctx, c, ReadOptionsRoll, rpc.None{})
}

// Upgrade starts to install a version of the system on all nodes, one after another.
func (c *Client) Upgrade(ctx context.Context, q UpgradeRequest) error {
	return order(ctx, c, UpgradeNodes, q)
}

// Upgrading returns the progress of Upgrade.
func (c *Client) Upgrading(ctx context.Context) (rollout.Progress, error) {
	return call(ctx, c, ReadUpgrade, rpc.None{})
}

// Backups returns the state of the scheduled backups.
func (c *Client) Backups(ctx context.Context) (status.BackupList, error) {
	return call(ctx, c, ListBackups, rpc.None{})
}

// MakeBackup starts a backup on this node.
func (c *Client) MakeBackup(ctx context.Context) error {
	return order(ctx, c, MakeBackup, rpc.None{})
}

// Minions returns what all nodes know about their minions. If finger is set, it includes the keys'
// fingerprints.
func (c *Client) Minions(ctx context.Context, finger bool) (status.MinionList, error) {
	return call(ctx, c, ListMinions, MinionsRequest{finger})
}

// ChangeKeys accepts, rejects or deletes at most [MaxKeys] keys.
func (c *Client) ChangeKeys(ctx context.Context, q KeyChange) error {
	return order(ctx, c, ChangeKeys, q)
}

// Tokens returns the log-ins of users, according to the tokens of the masters.
func (c *Client) Tokens(ctx context.Context) (control.Tokens, error) {
	return call(ctx, c, ListTokens, rpc.None{})
}

// RevokeTokens revokes the tokens that r selects.
func (c *Client) RevokeTokens(ctx context.Context, r control.Revocation) (control.Revoked, error) {
	return call(ctx, c, RevokeTokens, r)
}

// Git returns the git remotes of all nodes. If fetch is set, the masters first fetch the remote
// with that URL or name, or all remotes for "".
func (c *Client) Git(ctx context.Context, fetch bool, remote string) (status.GitList, error) {
	if fetch {
		return call(ctx, c, FetchGit, GitRequest{remote})
	}
	return call(ctx, c, ReadGit, rpc.None{})
}

// Explain returns what the master knows of a minion.
func (c *Client) Explain(ctx context.Context, q control.ExplainQuestion) (control.Explanation, error) {
	return call(ctx, c, ExplainMinion, q)
}

// Schedule returns the masters' schedule.
func (c *Client) Schedule(ctx context.Context) (status.Schedule, error) {
	return call(ctx, c, ReadSchedule, rpc.None{})
}

// PlanReset returns what a reset would do.
func (c *Client) PlanReset(ctx context.Context) (ResetPlan, error) {
	return call(ctx, c, PlanReset, rpc.None{})
}

// Reset starts to remove everything that the node has created on this machine. The method Resetting
// returns the progress.
func (c *Client) Reset(ctx context.Context) error {
	return order(ctx, c, ResetNode, rpc.None{})
}

// Resetting returns the progress of a reset.
func (c *Client) Resetting(ctx context.Context) (Resetting, error) {
	return call(ctx, c, ReadReset, rpc.None{})
}

// SetupProgress returns the progress of the set-up.
func (c *Client) SetupProgress(ctx context.Context) (setup.Progress, error) {
	return call(ctx, c, ReadSetup, rpc.None{})
}

// SetupFacts returns the facts of the machine.
func (c *Client) SetupFacts(ctx context.Context) (setup.Facts, error) {
	return call(ctx, c, ReadFacts, rpc.None{})
}

// SetupValidate checks answers without changing anything.
func (c *Client) SetupValidate(ctx context.Context, a setup.Answers) (setup.Validation, error) {
	return call(ctx, c, CheckAnswers, a)
}

// SetupPreflight checks answers against the machine, the network and the cluster. It takes up to a
// minute.
func (c *Client) SetupPreflight(ctx context.Context, a setup.Answers) ([]setup.Check, error) {
	return call(ctx, c, RunPreflight, a)
}

// SetupStart starts the set-up. The method SetupProgress returns the progress.
func (c *Client) SetupStart(ctx context.Context, a setup.Answers) error {
	return order(ctx, c, StartSetup, a)
}

// SetupRetry repeats the step that failed.
func (c *Client) SetupRetry(ctx context.Context) error {
	return order(ctx, c, RetrySetup, rpc.None{})
}

// SetupBack abandons a set-up before this machine becomes part of a cluster. Afterwards the state
// of the set-up is "new".
func (c *Client) SetupBack(ctx context.Context) error {
	return order(ctx, c, LeaveSetup, rpc.None{})
}

// SetupNetwork tries (action try), shows (look), keeps (confirm) or reverts (revert) a network
// configuration. Unless somebody confirms the configuration, the machine reverts it after
// setup.TrialLasts. n is used only by try.
func (c *Client) SetupNetwork(ctx context.Context, action string, n setup.Network) (setup.Trial, error) {
	return call(ctx, c, TryNetwork, NetworkRequest{action, n})
}

// SetupClaim returns which wizard leads the set-up, or requests the lead.
func (c *Client) SetupClaim(ctx context.Context, q setup.ClaimRequest) (setup.Claim, error) {
	return call(ctx, c, ClaimSetup, q)
}
