package nodeapi

import (
	"fmt"
	"net/http"
	"net/netip"

	"saltern/supervisor/keyuse"
	"saltern/supervisor/nodes"
)

// machineHeader has what a machine says about itself, see [keyuse.Speaker].
const machineHeader = "Saltern-Machine"

// speakingTransport puts what this machine is into each request.
type speakingTransport struct {
	*http.Transport
	speaker func() keyuse.Speaker
}

// speaking returns the transport of requests that say what the machine with that identity
// is, when it is told to.
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

// noteSpeaker tells the host that a machine makes a request with the key of a node. It returns why
// that machine may not act for the node; "" when it may.
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

// sourceOf is the address that a request came from.
func sourceOf(r *http.Request) netip.Addr {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil { // package http gives none other for TCP
		return netip.IPv6Unspecified()
	}
	return at.Addr().Unmap()
}
