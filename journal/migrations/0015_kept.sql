-- A packed message says whether its sender wanted it kept. Messages as they were are read as well (packing.py), all of them durable.
-- What was not reported is a fault of its queue and outcome (fingerprint.py, version 3); muted and fixed faults stay so.
UPDATE fault SET fingerprint = fingerprint_of_group(fingerprint, error_class, queue);
