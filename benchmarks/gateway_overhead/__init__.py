"""What the gateway itself costs a request, and an idle stream: no model, no tokenisation, all the rest real."""
