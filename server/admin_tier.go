package server

import (
	stdjson "encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// tier answers what is where: an engine.TierStatus as JSON, or 404 when old data is moved
// nowhere.
func (s *Server) tier(w http.ResponseWriter, _ *http.Request) {
	e := s.engine.Load()
	if e == nil {
		say(w, errors.New("recovering"))
		return
	}
	status, ok := e.TierStatus()
	w.Header().Set("Cache-Control", "no-store")
	if !ok {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintln(w, "no tier is configured")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = stdjson.NewEncoder(w).Encode(status) // its reader has gone if it fails
}
