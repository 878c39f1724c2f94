package server

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
)

// openAPI is docs/openapi.yaml in its JSON form, which a test in test/openapi keeps it
// to be.
//
//go:embed openapi.json
var openAPI []byte

// openAPITag is its entity tag.
var openAPITag = func() string {
	sum := sha256.Sum256(openAPI)
	return `"` + hex.EncodeToString(sum[:16]) + `"`
}()

// document answers a GET of the API's description.
func (c *call) document() {
	status, fields := c.render.Document(c.out[:0], &c.op, openAPITag)
	c.out = fields[:0]
	body := openAPI
	if status != 200 {
		body = nil
	}
	c.reply(status, fields, body)
}
