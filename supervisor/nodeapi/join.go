package nodeapi

import (
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"

	"saltern/internal/audit"
	"saltern/supervisor/nodeapi/internal/spake2"
	"saltern/supervisor/nodes"
)

type meetingKey struct{}

// meeting is the state of a join on the connection of a machine that is not authenticated yet.
type meeting struct {
	conn   net.Conn
	mu     sync.Mutex
	met    bool
	proof  []byte // the confirmation that the machine must send
	answer []byte // the cluster's confirmation, sent after the machine's
	next   bool   // the machine asked for the present secret, and the cluster has a next one
}

func (s *Server) answerHello(w http.ResponseWriter, r *http.Request, q helloRequest) {
	if !s.limit.takeHello(r.RemoteAddr) {
		s.warnOnce(r, "too many attempts to join")
		refuse(w,
			newFault(codeBusy, "too many attempts from your address or altogether; wait a minute",
				http.StatusTooManyRequests))
		return
	}

	m := r.Context().Value(meetingKey{}).(*meeting)
	m.mu.Lock()
	defer m.mu.Unlock()

	if f := s.refuseHello(m, r, q); f != nil {
		refuse(w, *f)
		return
	}

	key, err := s.host.ClusterKey()
	if err != nil {
		refuse(w, newFault(codeStorage, err.Error(), http.StatusServiceUnavailable))
		return
	}

	secrets, err := s.secrets()
	if err != nil {
		refuse(w, newFault(codeStorage, err.Error(), http.StatusServiceUnavailable))
		return
	}

	secret := secrets[0]
	if q.Next { // the next secret comes last; without one, the present secret does
		secret = secrets[len(secrets)-1]
	}

	bind, err := binding(r.TLS)
	if err != nil {
		refuse(w, newFault(codeRequest, err.Error(), http.StatusBadRequest))
		return
	}

	exchange, err := spake2.New(secret, false)
	if err != nil {
		refuse(w, newFault(codeSelf, err.Error(), http.StatusInternalServerError))
		return
	}

	mine, machine := newNonce(), peerHash(r.TLS)
	answer, proof, err := exchange.Finish(q.Share, meetingNames(bind, q.Nonce, mine, machine, s.id.Hash, key.Hash))
	if err != nil {
		refuse(w, newFault(codeRequest, "hello comes with a share of the exchange", http.StatusBadRequest))
		return
	}

	sig, err := key.signDigest(transcript("cluster key", bind, q.Nonce, mine, machine, s.id.Hash))
	if err != nil {
		refuse(w, newFault(codeSelf, err.Error(), http.StatusInternalServerError))
		return
	}

	m.met = true
	m.proof = proof
	m.answer = answer
	m.next = !q.Next && len(secrets) > 1
	replyJSON(w, helloReply{
		Protocol:  protocol,
		Version:   s.version,
		Nonce:     mine,
		Share:     exchange.Share(),
		Key:       key.Public,
		Signature: sig,
		Time:      s.now(),
	})
}

// refuseHello returns why a machine may not try to prove that it knows the secret, or nil if it
// may.
func (s *Server) refuseHello(m *meeting, r *http.Request, q helloRequest) *fault {
	cluster := s.host.Table().Cluster
	switch {
	case m.met || !validNonce(q.Nonce) || peerHash(r.TLS) == "":
		return new(newFault(codeRequest, "hello comes once, with a certificate and a nonce", http.StatusBadRequest))

	case q.Protocol != protocol:
		advice := joinAdvice(q.Protocol)
		s.warnOnce(r, "a machine of another version wants to join: "+advice, "protocol", q.Protocol)
		f := newFault(codeProtocol, "this cluster runs version "+s.version+": "+advice, http.StatusConflict)
		f.Protocol = protocol
		return &f

	case q.Cluster != "" && q.Cluster != cluster:
		s.warnOnce(r, "a machine wants to join another cluster")
		return new(newFault(codeCluster, "this node belongs to another cluster than the one you name", http.StatusConflict))
	}
	return nil
}

// joinAdvice returns a sentence that tells a machine with another protocol which end must be
// upgraded.
func joinAdvice(theirs int) string {
	if theirs < protocol {
		return "upgrade the machine that joins to this version first"
	}
	return "upgrade the nodes of the cluster first, or install their version on the machine that joins"
}

func (s *Server) answerProof(w http.ResponseWriter, r *http.Request, q proveRequest) {
	m := r.Context().Value(meetingKey{}).(*meeting)
	m.mu.Lock()
	defer m.mu.Unlock()

	if !m.met {
		refuse(w, newFault(codeRequest, "hello comes first, on the same connection", http.StatusBadRequest))
		return
	}

	m.met = false // after an attempt the machine needs another hello
	if !spake2.Equal(q.Proof, m.proof) {
		s.limit.failed(r.RemoteAddr)
		f := newFault(codeSecret, "the secret is not that of this cluster", http.StatusForbidden)
		f.Next = m.next
		if !m.next {
			s.warnOnce(r, "a machine does not know the secret")
			s.joinRefused(r)
		}

		refuse(w, f)
		return
	}

	s.proven(r, false)
	var err error
	t, machine := s.host.Table(), peerHash(r.TLS)
	if q.Join {
		n := q.Node
		n.Certificate = machine
		n.State = nodes.Joining
		n.Joined = s.now().UTC()
		if err := n.Check(); err != nil {
			refuse(w, newFault(codeRequest, err.Error(), http.StatusBadRequest))
			return
		}

		t, err = s.host.Admit(r.Context(), n)
		joined := audit.Record{Actor: peerActor(r, n.Name, audit.Secret), Action: "node.join", Object: n.Name}
		joined.Limited = true // the record has a rate limit, because a machine may ask to join any number of times
		s.host.Record(joined.Ended(err))

		if err != nil {
			s.log.Warn("node API: a machine was not admitted", "peer", n.Name, "address", n.Address, "error", err)
			refuse(w, faultOf(err))
			return
		}

		s.log.Info("a machine was admitted to the cluster", "peer", n.Name, "address", n.Address)
	} else if t.WasRemoved(machine) {
		refuse(w, newFault(codeRemoved, "this machine was removed from cluster "+t.Cluster, http.StatusGone))
		return
	}

	replyJSON(w, proveReply{
		Proof:   m.answer,
		Table:   t,
		Storage: s.host.Storage(),
		Time:    s.now(),
		Reach:   reachBack(r.Context(), r.RemoteAddr, q.Ports),
		Pad:     strings.Repeat("-", padding),
	})
}

// secrets returns the valid secrets in stretched form, the present one first. It stretches each
// secret only once and caches the result.
func (s *Server) secrets() ([]spake2.Secret, error) {
	texts, err := s.host.Secrets()
	if err != nil {
		return nil, err
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	var out []spake2.Secret
	now := map[string]spake2.Secret{}
	for _, text := range texts {
		if text == "" {
			continue // an empty text is never a secret
		}

		w, ok := s.stretch[text]
		if !ok {
			if w, err = stretch(text); err != nil {
				return nil, err
			}
		}

		now[text] = w
		out = append(out, w)
	}

	s.stretch = now // drop secrets that are no longer valid
	if len(out) == 0 {
		return nil, errors.New("this cluster has no secret: nobody can join")
	}

	return out, nil
}
