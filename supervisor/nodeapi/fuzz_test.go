package nodeapi

import (
	"encoding/json"
	"testing"

	"saltern/supervisor/nodeapi/internal/spake2"
	"saltern/supervisor/nodes"
)

// FuzzMessages reads what strangers send and what a false node answers, from a
// real exchange on.
func FuzzMessages(f *testing.F) {
	w, err := stretch(goodSecret)
	if err != nil {
		f.Fatal(err)
	}

	a, err := spake2.New(w, true)
	if err != nil {
		f.Fatal(err)
	}

	b, err := spake2.New(w, false)
	if err != nil {
		f.Fatal(err)
	}

	text, err := NewClusterKey()
	if err != nil {
		f.Fatal(err)
	}

	key, err := ParseClusterKey(text)
	if err != nil {
		f.Fatal(err)
	}

	names := meetingNames([]byte("bind"), newNonce(), newNonce(), "machine", "node", key.Hash)
	proof, _, err := a.Finish(b.Share(), names)
	if err != nil {
		f.Fatal(err)
	}

	digest := transcript("cluster key", []byte("bind"), "m", "c", "machine", "node")
	sig, err := key.signDigest(digest)
	if err != nil {
		f.Fatal(err)
	}

	table := nodes.Table{
		Version: 1,
		Cluster: "prod",
		KeyHash: key.Hash,
		Nodes:   []nodes.Node{{Name: "n1", Address: "192.0.2.1", State: nodes.Member, Certificate: key.Hash}},
	}

	for i, v := range []any{helloRequest{Protocol: protocol, Version: "v1", Cluster: "prod", Nonce: newNonce(), Share: a.Share()},
		helloReply{Protocol: protocol, Nonce: newNonce(), Share: b.Share(), Key: key.Public, Signature: sig},
		proveRequest{Proof: proof, Join: true, Node: nodes.Node{Name: "n2", Address: "192.0.2.2"}, Ports: []int{1}},
		proveReply{Proof: proof, Table: table}, newFault(codeProtocol, "another", 409)} {
		seed, err := json.Marshal(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), seed)
	}

	f.Fuzz(func(t *testing.T, kind uint8, text []byte) {
		switch kind % 5 {
		case 0:
			var q helloRequest
			if json.Unmarshal(text, &q) == nil && validNonce(q.Nonce) {
				if own, theirs, err := b.Finish(q.Share, names); err == nil && spake2.Equal(own, theirs) {
					t.Fatal("one confirmation serves for both")
				}
			}
		case 1:
			var r helloReply
			if json.Unmarshal(text, &r) == nil {
				_ = KeyHash(r.Key)
				_ = verifyCluster(r.Key, digest, r.Signature)
				_, _, _ = a.Finish(r.Share, names)
			}
		case 2:
			var q proveRequest
			if json.Unmarshal(text, &q) == nil {
				_ = q.Node.Check()
			}
		case 3:
			var r proveReply
			if json.Unmarshal(text, &r) == nil {
				_ = r.Table.Check()
			}
		default:
			var q fault
			if json.Unmarshal(text, &q) == nil && len(protocolAdvice(q.Protocol)) < 20 {
				t.Fatal("no advice")
			}
		}
	})
}
