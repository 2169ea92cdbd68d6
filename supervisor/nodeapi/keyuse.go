package nodeapi

import (
	"fmt"
	"net/http"
	"net/netip"

	"saltern/supervisor/keyuse"
	"saltern/supervisor/nodes"
)

// machineHeader is the header in which a machine describes itself, see [keyuse.Speaker].
const machineHeader = "Saltern-Machine"

// speakingTransport adds machineHeader to each request.
type speakingTransport struct {
	*http.Transport
	speaker func() keyuse.Speaker
}

// speaking returns a transport that adds machineHeader to each request and sends it through t. If
// the identity has no speaker, it returns t itself.
func speaking(t *http.Transport, id *Identity) http.RoundTripper {
	if id.speaker == nil {
		return t
	}
	return &speakingTransport{t, id.speaker}
}

// RoundTrip implements http.RoundTripper.
func (s *speakingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context()) // a RoundTripper must not change the request that it is given
	r.Header.Set(machineHeader, s.speaker().String())
	return s.Transport.RoundTrip(r)
}

// noteSpeaker informs the host that a machine made a request with the key of the node n. It returns
// why that machine may not act for n, or "" if it may.
func (s *Server) noteSpeaker(r *http.Request, n nodes.Node) (refusal string, err error) {
	speaker, err := keyuse.ParseSpeaker(r.Header.Get(machineHeader))
	if err != nil {
		return "", err
	}
	source := sourceOf(r).String()
	if why := s.host.Used(n, speaker, source); why != "" {
		return fmt.Sprintf("the machine at %s may not act for %s: %s", source, n.Name, why), nil
	}
	return "", nil
}

// sourceOf returns the address from which a request came.
func sourceOf(r *http.Request) netip.Addr {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil { // cannot happen for TCP
		return netip.IPv6Unspecified()
	}
	return at.Addr().Unmap()
}
